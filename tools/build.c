// build.c: amosc build: ahead of time. The object that train runs in memory, linked with the
// runtime.
#include "tool.h"
#include <string.h>
#include <unistd.h>

// The runtime's archive: beside the installed command, or where this one was built.
static const char *runtime_archive(Arena *arena)
{
	char self[4096];
	ssize_t count = readlink("/proc/self/exe", self, sizeof self - 1);
	self[MAX(count, 0)] = 0;
	char *slash = strrchr(self, '/');
	if (slash)
		*slash = 0;
	const char *installed = format(arena, "%s/" AMOSC_ARCHIVE_INSTALLED, self);
	return access(installed, R_OK) ? AMOSC_ARCHIVE_BUILT : installed;
}

static bool is_object(const char *out)
{
	return ends_with(out, ".o") || ends_with(out, ".ptx");
}

static void check_out(const Command *command, const char *out)
{
	if (!out)
		bad_usage(command, "wants -o NAME");
	if (ends_with(out, ".so") || ends_with(out, ".a"))
		bad_usage(command,
		          format(command->arena,
		                 "'%s': libraries are not there yet; an executable or .o is", out));
	if (!is_object(out) && !target_links_here(target_named(
	                           command->arena, choice(command, OPT_target, "cpu"), NULL)))
		bad_usage(command, "for another target wants -o NAME.o: an object, or the text of "
		                   "PTX for cuda");
}

void verb_build(Command *command)
{
	const char *out = choice(command, OPT_out, NULL);
	check_out(command, out);
	if (chosen(command, OPT_update_only))
		bad_usage(command, "--update-only is not there yet");
	struct amos_options options = runtime_options(command);
	struct amos_data *data = NULL;
	if (options.data.count)
		data = open_data(command, &options, false);
	Trainer t = compile_trainer(command, data, true);
	if (data)
		note_unused(command, data, t.graph);
	check(amos_output_check(out));
	if (is_object(out))
		write_object(t.object, out);
	else
		write_executable(command->arena, t.object, out, runtime_archive(command->arena));
	if (chosen(command, OPT_json))
		print_json(json_pack("{so si ss}", "out", json_text(out), "kernels",
		                     t.object->kernels, "chosen", t.opt.chosen));
	else if (!chosen(command, OPT_quiet))
		printf("%s%s: %d kernels\n", t.opt.chosen, out, t.object->kernels);
}

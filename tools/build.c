// build.c: implements amosc build: compiles to an object file or an executable.
// The object is the one that train runs in memory; an executable links it with the runtime.
#include "tool.h"
#include <string.h>
#include <unistd.h>

const char *installed_file(Arena *arena, const char *installed, const char *built)
{
	char self[4096];
	ssize_t count = readlink("/proc/self/exe", self, sizeof self - 1);
	self[MAX(count, 0)] = 0;
	char *slash = strrchr(self, '/');
	if (slash)
		*slash = 0;
	const char *path = format(arena, "%s/%s", self, installed);
	return access(path, R_OK) ? built : path;
}

void verb_build(Session *session)
{
	const char *out = choice(session, OPT_out, NULL);
	bool object = out && (ends_with(out, ".o") || ends_with(out, ".ptx"));
	if (!out)
		bad_usage(session, "expected -o NAME");
	if (ends_with(out, ".so") || ends_with(out, ".a"))
		bad_usage(session,
		          format(session->arena, "expected an executable or .o, found '%s'", out));
	if (!object && !target_links_here(target_of(session)))
		bad_usage(session, "expected -o NAME.o or NAME.ptx for another target");
	if (chosen(session, OPT_update_only))
		bad_usage(session, "--update-only is not supported yet");
	Program *program = program_new(session, open_given(session));
	program->weights = true;
	run_passes(program, PASS_join);
	if (program->data)
		note_unused(session, program->data, program_graph(program));
	run_passes(program, PASS_object);
	write_depfile(session, out);
	need_done(amos_output_check(out));
	if (object)
		write_object(program->object, out);
	else
		write_executable(
		    session->arena, program->object, out,
		    installed_file(session->arena, AMOSC_ARCHIVE_INSTALLED, AMOSC_ARCHIVE_BUILT));
	if (chosen(session, OPT_json))
		print_json(json_pack("{so si ss}", "out", json_text(out), "kernels",
		                     program->object->kernels, "chosen", program->note));
	else if (!chosen(session, OPT_quiet))
		printf("%s%s: %d kernels\n", program->note, out, program->object->kernels);
}

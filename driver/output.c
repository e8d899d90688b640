// output.c: writes a compiled program as an object, a library or an executable.
#include "driver.h"
#include <ctype.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *suffix, *device;
} device_codes[] = {{".ptx", "cuda"}, {".spv", "opencl"}, {".hsaco", "hip"}};

// True if the output is the code of a device alone.
static bool is_device_code(const char *path)
{
	bool is = false;
	for (int k = 0; k < COUNT(device_codes); k++)
		is |= ends_with(path, device_codes[k].suffix);
	return is;
}

static OutputKind kind_of(const char *path)
{
	return ends_with(path, ".o") || is_device_code(path) ? OBJECT_FILE
	       : ends_with(path, ".a")                       ? STATIC_LIBRARY
	       : ends_with(path, ".so")                      ? SHARED_LIBRARY
	                                                     : EXECUTABLE;
}

const char *linker_path(Arena *arena)
{
	return installed_file(arena, "ld.lld", AMOSC_LLD);
}

// ---- names ----------------------------------------------------------------------------

static bool is_identifier(const char *name)
{
	bool is = *name && !isdigit((unsigned char)*name);
	for (; *name && is; name++)
		is = isalnum((unsigned char)*name) || *name == '_';
	return is;
}

// Returns the prefix of the global symbol: --name, or the name of the output.
static const char *prefix_of(const Session *session, const char *path)
{
	Arena *arena = session->arena;
	const char *name = choice(session, OPT_name, NULL);
	if (name && !is_identifier(name))
		bad_usage(session,
		          format(arena, "--name: expected a C identifier, found '%s'", name));
	if (name)
		return name;
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	char *prefix = format(arena, "%s%.*s", isdigit((unsigned char)*base) ? "_" : "",
	                      (int)strcspn(base, "."), base);
	for (char *c = prefix; *c; c++)
		*c = isalnum((unsigned char)*c) ? *c : '_';
	return *prefix ? prefix : "model";
}

// ---- the runtime ----------------------------------------------------------------------

// Returns the folder of the program or shared library that this code is in, with links followed.
static char *own_folder(Arena *arena)
{
	Dl_info self;
	bool library =
	    dladdr((void *)(uintptr_t)own_folder, &self) && strstr(self.dli_fname, ".so");
	char *path = realpath(library ? self.dli_fname : "/proc/self/exe", NULL);
	char *folder = copy_string(arena, path ? path : "");
	free(path);
	if (strrchr(folder, '/'))
		*strrchr(folder, '/') = 0;
	return folder;
}

const char *installed_file(Arena *arena, const char *name, const char *built)
{
	static const char *const places[] = {"../lib/amosc", "amosc", "../amosc"};
	const char *own = own_folder(arena);
	for (int k = 0; k < COUNT(places); k++) {
		const char *path = format(arena, "%s/%s/%s", own, places[k], name);
		if (!access(path, R_OK))
			return path;
	}
	return built;
}

// True if the output has the runtime that needs libc alone: libraries offer nothing that needs
// more.
static bool is_minimal(const Session *session, OutputKind kind)
{
	return kind != EXECUTABLE || chosen(session, OPT_minimal);
}

static const char *archive_of(const Session *session, OutputKind kind)
{
	return chosen(session, OPT_freestanding) ? "libamos_core.a"
	       : is_minimal(session, kind)       ? "libamos_minimal.a"
	                                         : "libamos.a";
}

// Returns how to go on without a runtime for the target.
static const char *without_runtime(const Session *session)
{
	Arena *arena = session->arena;
	if (!chosen(session, OPT_freestanding))
		return "build one with a compiler for it (docs/targets.md), or write the object "
		       "alone: -o NAME.o";
	return format(arena, "write the object alone, -o NAME.o, and compile %s with it",
	              installed_file(arena, "amos_core.c", AMOSC_RUNTIMES_BUILT "/amos_core.c"));
}

// Returns the directory of the runtime for the target, from which trainers are linked.
static const char *runtime_of(const Session *session, const char *path)
{
	Arena *arena = session->arena;
	const char *system = target_system(arena, target_of(session));
	const char *built = format(arena, "%s/%s", AMOSC_RUNTIMES_BUILT, system);
	const char *folder = installed_file(arena, system, built);
	if (access(folder, R_OK))
		fail(path, "no runtime for %s is installed" HELP "%s", system,
		     without_runtime(session));
	OutputKind kind = kind_of(path);
	const char *needed = kind == SHARED_LIBRARY      ? "library"
	                     : is_minimal(session, kind) ? archive_of(session, kind)
	                                                 : "program";
	if (access(format(arena, "%s/%s", folder, needed), R_OK))
		fail(path, "the runtime for %s is for %s alone" HELP "%s", system,
		     kind == SHARED_LIBRARY ? "static programs" : "minimal programs",
		     kind == SHARED_LIBRARY ? "build a static library, -o NAME.a"
		                            : "give --minimal");
	return folder;
}

// ---- outputs --------------------------------------------------------------------------

// True if programs that amos.h describes call the output.
static bool is_called(const char *path)
{
	return kind_of(path) != EXECUTABLE && !is_device_code(path);
}

static void check_freestanding(const Session *session, const char *path)
{
	if (!ends_with(path, ".o") && !ends_with(path, ".a"))
		bad_usage(session, "--freestanding: expected -o NAME.o or NAME.a");
	const Target *const *all;
	if (targets_of(session, &all) > 1 || target_device(all[0]))
		bad_usage(session, "--freestanding: expected a CPU as the target");
	if (chosen(session, OPT_minimal))
		bad_usage(session, "expected --freestanding or --minimal, found both");
	if (chosen(session, OPT_bindings))
		bad_usage(session, "--bindings: its interfaces need a system; leave out "
		                   "--freestanding");
}

static void warn_unused(const Session *session, OptionName option, const char *why)
{
	if (chosen(session, option))
		tell(session, "amosc: warning: --%s has no effect: %s\n",
		     long_name(session->arena, option), why);
}

// Warns of options that have no effect on what is written. --threads, which is about CPUs, is an
// error on devices.
static void check_effects(Session *session, const char *path)
{
	const Target *const *all;
	Arena *arena = session->arena;
	OutputKind kind = kind_of(path);
	int n = targets_of(session, &all), devices = 0;
	for (int i = 0; i < n; i++)
		devices += target_device(all[i]) != NULL;
	if (devices == n)
		refuse_threads(session);
	if (kind == OBJECT_FILE)
		warn_unused(session, OPT_minimal,
		            format(arena, "no runtime is linked into %s", path));
	if (is_device_code(path))
		warn_unused(session, OPT_no_export,
		            format(arena, "%s has the device's code alone", path));
	if (!is_called(path))
		warn_unused(session, OPT_name, format(arena, "%s offers no symbol", path));
}

// Fails if the ending of an executable's name is that of another kind of file.
static void check_ending(const Session *session, const char *path)
{
	static const char beside[] = " .h .hpp .f90 .rs .py ",
	                  other[] = " .c .cpp .s .ll .bc .onnx .obj .lib .dll .dylib .cubin ";
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	const char *dot = strrchr(base, '.');
	const char *ending = format(session->arena, " %s ", dot ? dot : "");
	if (strstr(beside, ending))
		bad_usage(session, format(session->arena,
		                          "expected -o NAME.so, .a or .o, beside which a file of "
		                          "this kind is written; found '%s'",
		                          path));
	if (strstr(other, ending) || strstr(base, ".so."))
		bad_usage(session, format(session->arena,
		                          "expected -o NAME for an executable, or NAME.so, .a or "
		                          ".o; found '%s'",
		                          path));
}

void check_output(Session *session, const char *path)
{
	if (!chosen(session, OPT_target) && !chosen(session, OPT_tune))
		PUSH(session->arena, session->choices,
		     ((Choice){OPT_target, target_here(session->arena)}));
	const Target *const *all;
	OutputKind kind = kind_of(path);
	session->several_targets = !is_device_code(path) && !chosen(session, OPT_tune);
	if (targets_of(session, &all) > 1 && !session->several_targets)
		bad_usage(session,
		          format(session->arena, "expected one --target for %s, found '%s'",
		                 is_device_code(path) ? path : "--tune",
		                 choice(session, OPT_target, NULL)));
	if (chosen(session, OPT_freestanding))
		check_freestanding(session, path);
	const char *device = target_device(target_of(session));
	for (int k = 0; k < COUNT(device_codes); k++)
		if (ends_with(path, device_codes[k].suffix) &&
		    (!device || strcmp(device, device_codes[k].device)))
			bad_usage(session, format(session->arena,
			                          "expected --target %s for an output NAME%s",
			                          device_codes[k].device, device_codes[k].suffix));
	if (kind == EXECUTABLE)
		check_ending(session, path);
	if (kind == EXECUTABLE && chosen(session, OPT_update_only))
		bad_usage(session, format(session->arena,
		                          "--update-only: expected -o NAME.so, .a or .o, for a "
		                          "program that computes the gradients; found '%s'",
		                          path));
	if (!is_called(path) && chosen(session, OPT_no_gradients))
		bad_usage(session,
		          format(session->arena,
		                 "--no-gradients: expected -o NAME.so, .a or .o, as others "
		                 "have no gradients; found '%s'",
		                 path));
	const char *prefix = prefix_of(session, path);
	for (int i = 0; i < session->choices.count; i++)
		if (session->choices.at[i].option == OPT_bindings)
			check_binding(session, session->choices.at[i].value, path, prefix);
	if (kind != OBJECT_FILE)
		runtime_of(session, path);
	check_effects(session, path);
}

typedef VEC(struct OutputText) Texts;

// Returns the files written with a library or an object: NAME.h and those of --bindings.
static Texts texts_of(const Program *p, const char *path, const char *prefix)
{
	Arena *arena = p->session->arena;
	Texts texts = {0};
	const char *stem = format(arena, "%.*s", (int)(strrchr(path, '.') - path), path);
	PUSH(arena, texts,
	     ((struct OutputText){format(arena, "%s.h", stem), header_text(p, prefix)}));
	for (int i = 0; i < p->session->choices.count; i++) {
		const Choice *c = &p->session->choices.at[i];
		if (c->option != OPT_bindings)
			continue;
		const Binding *b = binding_named(p->session, c->value);
		PUSH(arena, texts,
		     ((struct OutputText){format(arena, "%s%s", stem, b->suffix),
		                          binding_text(arena, b, stem, prefix)}));
	}
	return texts;
}

void prepare_output(Program *p, const char *path)
{
	p->device_code = is_device_code(path);
	p->weights = true;
	p->update_only = chosen(p->session, OPT_update_only);
	p->session->several = is_called(path) && !p->update_only;
	p->apart = p->session->several && !chosen(p->session, OPT_no_gradients);
	const Target *const *listed, *const *first = p->target;
	Arena *arena = p->session->arena;
	int n = targets_of(p->session, &listed), variants = 1;
	if (!chosen(p->session, OPT_freestanding)) // whose runtime knows no features of CPUs
		variants = target_variants(arena, listed[0], is_narrow(p->session), &first);
	const Target **all = NEWS(arena, const Target *, variants + n);
	for (int i = 0; i < variants; i++)
		all[i] = first[i];
	for (int i = 1; i < n; i++)
		all[variants++] = listed[i];
	p->target = all;
	p->variants = variants;
	allow_more(arena, (uint64_t)(variants * MAX(batch_sizes(p->session).count, 1) - 1));
}

static bool is_channels(int64_t size)
{
	return size == 1 || size == 3 || size == 4;
}

// True if a program may read images: an input has their form, or --data gives some. Their readers
// are larger than all else that a program of a small model has.
static bool reads_images(const Program *p)
{
	const Graph *g = program_graph(p);
	bool reads = false;
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		bool form = s->shape.rank == 4 &&
		            (is_channels(s->shape.dim[1]) || is_channels(s->shape.dim[3]));
		reads |= s->kind == S_input && form && (is_float(s->type) || s->type == E_u8);
	}
	for (int i = 0; i < p->session->choices.count; i++) {
		const Choice *c = &p->session->choices.at[i];
		reads |= c->option == OPT_data && strstr(c->value, "images:");
	}
	return reads;
}

void write_program(const Program *p, const char *path)
{
	const Session *session = p->session;
	Arena *arena = session->arena;
	OutputKind kind = kind_of(path);
	need_done(amos_output_check(path));
	const char *prefix = kind == EXECUTABLE ? "amos" : prefix_of(session, path);
	Texts texts = is_called(path) ? texts_of(p, path, prefix) : (Texts){0};
	for (int k = 0; k < texts.count; k++)
		need_done(amos_output_check(texts.at[k].path));
	write_output(p->object,
	             &(Output){.kind = kind,
	                       .path = path,
	                       .symbol = p->device_code ? NULL : format(arena, "%s_model", prefix),
	                       .texts = texts.count,
	                       .text = texts.at,
	                       .runtime = kind == OBJECT_FILE ? NULL : runtime_of(session, path),
	                       .archive = archive_of(session, kind),
	                       .minimal = is_minimal(session, kind),
	                       .images = reads_images(p),
	                       .lld = linker_path(arena)});
}

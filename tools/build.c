// build.c: implements amosc build: compiles to an object file, a library or an executable.
// The code is that which train runs in memory; libraries and executables include the runtime.
#include "tool.h"

static const char *variant_name(const Program *program, int v)
{
	const Target *t = program->target[v];
	return target_device(t) ? target_kind(program->session->arena, t, true)
	                        : target_machine(t)->name;
}

static void report(const Program *program, const char *out)
{
	const Session *session = program->session;
	int kernels = program->object->kernels;
	tell(session, "%s", program->note);
	if (chosen(session, OPT_json)) {
		json_t *targets = json_array();
		for (int v = 0; v < program->variants; v++)
			json_array_append_new(targets, json_string(variant_name(program, v)));
		print_json(json_pack("{so si so ss}", "out", json_text(out), "kernels", kernels,
		                     "targets", targets, "chosen", program->note));
	} else if (!chosen(session, OPT_quiet)) {
		printf("%s: %d %s for", out, kernels, PLURAL(kernels, "kernel", "kernels"));
		for (int v = 0; v < program->variants; v++)
			printf("%s %s", v ? "," : "", variant_name(program, v));
		putchar('\n');
	}
}

void verb_build(Session *session)
{
	const char *out = choice(session, OPT_out, NULL);
	if (!out)
		bad_usage(session, "expected -o NAME");
	need_file(session, OPT_out, "a name, whose ending says what to write");
	need_file(session, OPT_depfile, "a file");
	check_output(session, out);
	Program *program = program_new(session, open_given(session));
	prepare_output(program, out);
	run_passes(program, PASS_grad);
	if (program->data)
		note_unused(session, program->data, program_graph(program));
	run_passes(program, PASS_object);
	write_depfile(session, out);
	write_program(program, out);
	report(program, out);
}

// build.c: implements amosc build: compiles to an object file, a library or an executable.
// The code is that which train runs in memory; libraries and executables include the runtime.
#include "tool.h"

void verb_build(Session *session)
{
	const char *out = choice(session, OPT_out, NULL);
	if (!out)
		bad_usage(session, "expected -o NAME");
	if (chosen(session, OPT_update_only))
		bad_usage(session, "--update-only is not supported yet");
	check_output(session, out);
	Program *program = program_new(session, open_given(session));
	prepare_output(program, out);
	run_passes(program, PASS_join);
	if (program->data)
		note_unused(session, program->data, program_graph(program));
	run_passes(program, PASS_object);
	write_depfile(session, out);
	write_program(program, out);
	if (chosen(session, OPT_json))
		print_json(json_pack("{so si ss}", "out", json_text(out), "kernels",
		                     program->object->kernels, "chosen", program->note));
	else if (!chosen(session, OPT_quiet))
		printf("%s%s: %d kernels\n", program->note, out, program->object->kernels);
}

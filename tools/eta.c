// eta.c: amosc eta: every parameter, the scale that is expected of it, and the reasons.
#include "report.h"
#include <string.h>

static void print_report(Command *command, const Report *report)
{
	static const struct {
		const char *name;
		void (*print)(Command *, const Report *);
	} formats[] = {
	    {"text", print_text}, {"md", print_md}, {"html", print_html}, {"csv", print_csv}};
	const char *wanted = choice(command, OPT_format, "text");
	for (int i = 0; i < COUNT(formats); i++)
		if (!strcmp(formats[i].name, wanted)) {
			formats[i].print(command, report);
			return;
		}
	fail_status(STATUS_USAGE, "--format", "'%s': there are text, md, html and csv", wanted);
}

static void print_difference(Command *command)
{
	if (command->arguments.count != 2)
		bad_usage(command, "--diff wants two models or reports");
	Report a = make_report(command, command->arguments.at[0]);
	Report b = make_report(command, command->arguments.at[1]);
	int count = print_differences(command, &a, &b);
	if (count)
		fail(NULL, "%d %s", count, count == 1 ? "parameter differs" : "parameters differ");
}

void verb_eta(Command *command)
{
	if (chosen(command, OPT_diff)) {
		print_difference(command);
		return;
	}
	if (command->arguments.count > 1)
		bad_usage(command, "two models go with --diff");
	if (chosen(command, OPT_check)) {
		check_eta(command);
		return;
	}
	Report report = make_report(command, command->arguments.at[0]);
	const char *language = choice(command, OPT_for, NULL);
	if (chosen(command, OPT_json))
		print_json(json_incref(report.json));
	else if (language)
		print_code(command, &report, language);
	else
		print_report(command, &report);
}

// eta.c: implements amosc eta: reports the expected scale of every parameter, with the reasons.
#include "report.h"

void verb_eta(Session *session)
{
	static const struct {
		const char *name;
		void (*print)(Session *, const Report *);
	} formats[] = {
	    {"text", print_text}, {"md", print_md}, {"html", print_html}, {"csv", print_csv}};
	bool diff = chosen(session, OPT_diff);
	if (diff && !session->other)
		bad_usage(session, "--diff: expected two models or reports");
	if (session->other && !diff)
		bad_usage(session, "expected one model, or two with --diff");
	if (chosen(session, OPT_check)) {
		check_eta(session);
		return;
	}
	Report report = make_report(session, session->path);
	const char *language = choice(session, OPT_for, NULL);
	if (diff) {
		Report other = make_report(session, session->other);
		int count = print_differences(session, &report, &other);
		if (count)
			fail(NULL, "%d %s", count,
			     count == 1 ? "parameter differs" : "parameters differ");
	} else if (chosen(session, OPT_json)) {
		print_json(json_incref(report.json));
	} else if (language) {
		print_code(session, &report, language);
	} else {
		const char *wanted = choice(session, OPT_format, "text");
		int format = FIND(wanted, formats);
		if (format < 0)
			fail_status(STATUS_USAGE, "--format",
			            "expected text, md, html or csv, found '%s'", wanted);
		formats[format].print(session, &report);
	}
}

// eta.c: implements amosc eta: reports the expected scale of every parameter, with the reasons.
#include "report.h"
#include <string.h>

// Fails if there is no such target, or it has no use for an option.
static void check_target(Session *session, const char *target)
{
	static const OptionName unused[] = {OPT_json, OPT_format};
	bool check = chosen(session, OPT_check), widths = check && target && !strcmp(target, "mup");
	if (check && !widths && chosen(session, OPT_format))
		bad_usage(session, "--format does nothing with --check");
	if (check && target && !widths)
		bad_usage(session,
		          format(session->arena, "--check does nothing with --for %s", target));
	int bases = 0;
	for (int i = 0; i < session->choices.count; i++)
		bases += session->choices.at[i].option == OPT_base;
	if (bases > 1 && !check)
		bad_usage(session, "--base: expected one model, or several with --check");
	if (!target || is_policy(target))
		return;
	if (strcmp(target, "jax") && strcmp(target, "torch"))
		fail_status(STATUS_USAGE, "--for", "expected %s, jax or torch, found '%s'",
		            policy_names(session->arena), target);
	for (int i = 0; i < COUNT(unused); i++)
		if (chosen(session, unused[i]))
			bad_usage(session, format(session->arena, "--for %s does nothing with --%s",
			                          target, long_name(session->arena, unused[i])));
}

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
	const char *target = choice(session, OPT_for, NULL),
	           *base_path = choice(session, OPT_base, NULL);
	check_target(session, target);
	if (chosen(session, OPT_check)) {
		(target ? check_widths : check_eta)(session);
		return;
	}
	bool compared = diff || target;
	Report report = (compared ? full_report : make_report)(session, session->path);
	const char *wanted = choice(session, OPT_format, "text");
	if (diff) {
		Report other = full_report(session, session->other);
		int count = print_differences(session, &report, &other);
		if (count)
			fail(NULL, "%d %s", count,
			     count == 1 ? "parameter differs" : "parameters differ");
	} else if (target && is_policy(target)) {
		Report base;
		if (base_path)
			base = full_report(session, base_path);
		print_policy(session,
		             make_policy(session, target, &report, base_path ? &base : NULL));
	} else if (target) {
		print_code(session, &report, target);
	} else if (chosen(session, OPT_json)) {
		print_report(&report);
	} else {
		int format = FIND(wanted, formats);
		if (format < 0)
			fail_status(STATUS_USAGE, "--format",
			            "expected text, md, html or csv, found '%s'", wanted);
		formats[format].print(session, &report);
	}
}

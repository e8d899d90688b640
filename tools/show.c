// show.c: implements amosc show: prints what train compiles, after any pass, in the notation.
#include "tool.h"
#include <stdlib.h>
#include <string.h>

static const char *read_text(Session *session, const char *path)
{
	FILE *from = strcmp(path, "-") ? amos_input_stream(path) : stdin;
	char *text = NULL;
	size_t room = 0;
	if (!from)
		need_done(amos_fail_errno("read", path));
	ssize_t count = getdelim(&text, &room, 0, from);
	at_end(session->arena, free, text);
	if (count > 0 && !text[count - 1])
		fail(path, "expected the output of amosc show, found a zero byte");
	need_done(amos_all_read(from, path));
	if (from != stdin)
		fclose(from);
	return count > 0 ? text : "";
}

void verb_show(Session *session)
{
	const char *from = choice(session, OPT_from, NULL),
	           *after = choice(session, OPT_after, NULL);
	if (!from == !session->path)
		bad_usage(session, "expected MODEL, or --from FILE");
	const char *text = from ? read_text(session, from) : NULL;
	const char *shown = show_program(session, from, text, &after);
	if (chosen(session, OPT_json))
		print_json(json_pack("{so ss so}", "model",
		                     json_text(session->path ? session->path : from), "after",
		                     after, "text", json_text(shown)));
	else
		fputs(shown, stdout);
}

// manual.c: writes a page of the manual, from verbs.def, to standard output at build time.
// Usage: manual roff|markdown [VERB]      without a verb: the page of amosc itself
//        manual bash|zsh|fish             the completion of a shell
#include "manual.h"
#include <string.h>

static const char ends[] = "0 success; 1 invalid model or data, or an option that does not fit "
                           "them; 2 usage error, such as an "
                           "unknown option or value; 3 system error.";

// ---- two notations --------------------------------------------------------------------

// The fields of a template are @ and a letter: n name, a arguments, s summary, b about, x example,
// o options, p passes, v verbs, e exit status. Those of an option are n name, l letter, a argument,
// h help; `letter` and `argument` are templates for l and a.
typedef struct Form {
	const char *name;
	const char *text, *cell; // letters that are escaped in text, and in a cell of a table
	const char *overview, *verb, *page, *option, *letter, *argument;
	const char *passes, *pass; // n name, s summary, t what it takes, g what it gives
} Form;

static const Form forms[] = {
    {"roff", "-\\", "-\\",
     .overview = ".TH AMOSC 1 \"\" \"amosc " AMOS_VERSION "\" \"User Commands\"\n.SH NAME\n"
                 "amosc \\- trains an exported ONNX model\n"
                 ".SH SYNOPSIS\n.B amosc\n\\fIVERB\\fR ...\n"
                 ".SH VERBS\n@v.SH EXIT STATUS\n@e\n",
     .verb = ".TP\n.BR amosc\\-@n (1)\n@s\n",
     .page = ".TH AMOSC\\-@n 1 \"\" \"amosc " AMOS_VERSION
             "\" \"User Commands\"\n.SH NAME\namosc\\-@n \\- @s\n"
             ".SH SYNOPSIS\n.B amosc @n\n@a[\\fIOPTION\\fR...]\n.SH DESCRIPTION\n@b\n"
             ".SH EXAMPLE\n.EX\n@x\n.EE\n.SH OPTIONS\n@o@p"
             ".SH EXIT STATUS\n@e\n.SH SEE ALSO\n.BR amosc (1)\n",
     .option = ".TP\n@l\\fB\\-\\-@n\\fR@a\n@h.\n", .letter = "\\fB\\-@l\\fR, ",
     .argument = "=\\fI@a\\fR", .passes = ".SH PASSES\n@p",
     .pass = ".TP\n\\fB@n\\fR (@t to @g)\n@s.\n"},
    {"markdown", "", "|",
     .overview = "# amosc\n\nCompiles an exported ONNX model into a program that trains it."
                 "\n\n| verb | |\n|---|---|\n@v\nExit status: @e\n",
     .verb = "| [`amosc @n`](amosc-@n.md) | @s |\n",
     .page = "# amosc @n\n\n@s.\n\n```\namosc @n @a[OPTION...]\n```\n\n@b\n\n"
             "```\n@x\n```\n\n| option | |\n|---|---|\n@o@p\nExit status: @e\n",
     .option = "| @l`--@n@a` | @h |\n", .letter = "`-@l`, ", .argument = "=@a",
     .passes = "\n| pass | takes | gives | |\n|---|---|---|---|\n@p",
     .pass = "| `@n` | @t | @g | @s |\n"},
};

// A line of roff that begins with a dot or a quote would be a request.
static const char *safe(Arena *arena, const char *text, const char *letters)
{
	Text t = {.arena = arena};
	bool roff = strchr(letters, '\\');
	for (const char *c = text; *c; c++) {
		bool begins = c == text || c[-1] == '\n';
		say(&t, "%s", roff && begins && strchr(".'", *c) ? "\\&" : "");
		say(&t, !strchr(letters, *c) ? "%c" : *c == '\\' ? "\\e" : "\\%c", *c);
	}
	return t.at ? t.at : "";
}

typedef struct Field {
	char key;
	const char *text;
} Field;

static const char *fill(Arena *arena, const char *template, int n, const Field *field)
{
	Text t = {.arena = arena};
	for (const char *c = template; *c; c++) {
		const char *text = NULL;
		for (int i = 0; i < n && *c == '@'; i++)
			text = field[i].key == c[1] ? field[i].text : text;
		say(&t, text ? "%s" : "%.1s", text ? text : c);
		c += text != NULL;
	}
	return t.at;
}

// ---- pages ----------------------------------------------------------------------------

static const char *passes_text(Arena *arena, const Form *form)
{
	Text all = {.arena = arena};
	for (Pass k = 0; k < PASSES; k++) {
		Field fields[] = {{'n', pass_table[k].name},
		                  {'t', pass_table[k].takes},
		                  {'g', pass_table[k].gives},
		                  {'s', safe(arena, pass_table[k].summary, form->cell)}};
		say(&all, "%s", fill(arena, form->pass, COUNT(fields), fields));
	}
	return fill(arena, form->passes, 1, &(Field){'p', all.at});
}

static const char *page_text(Arena *arena, const Form *form, const Verb *verb)
{
	Text all = {.arena = arena};
	for (OptionName i = 0; i < OPTIONS; i++) {
		if (!(options[i].group & verb->takes))
			continue;
		const char letter[] = {(char)options[i].letter, 0}, *argument = options[i].argument;
		Field short_one = {'l', letter},
		      value = {'a', argument ? safe(arena, argument, form->cell) : ""};
		Field fields[] = {{'n', safe(arena, long_name(arena, i), form->text)},
		                  {'l', *letter ? fill(arena, form->letter, 1, &short_one) : ""},
		                  {'a', argument ? fill(arena, form->argument, 1, &value) : ""},
		                  {'h', safe(arena, option_help(arena, i), form->cell)}};
		say(&all, "%s", fill(arena, form->option, COUNT(fields), fields));
	}
	Field fields[] = {
	    {'n', verb->name},
	    {'a', *verb->arguments ? format(arena, "%s ", verb->arguments) : ""},
	    {'s', safe(arena, verb->summary, form->text)},
	    {'b', safe(arena, verb->about, form->text)},
	    {'x', safe(arena, verb->example, form->text)},
	    {'o', all.at},
	    {'p', options[OPT_after].group & verb->takes ? passes_text(arena, form) : ""},
	    {'e', ends}};
	return fill(arena, form->page, COUNT(fields), fields);
}

static const char *overview_text(Arena *arena, const Form *form)
{
	Text all = {.arena = arena};
	for (const Verb *v = verbs; v->name; v++) {
		Field fields[] = {{'n', v->name}, {'s', safe(arena, v->summary, form->cell)}};
		say(&all, "%s", fill(arena, form->verb, COUNT(fields), fields));
	}
	return fill(arena, form->overview, 2, (Field[]){{'v', all.at}, {'e', ends}});
}

int main(int argc, char **argv)
{
	const Verb *verb = argc == 3 ? verb_named(argv[2]) : NULL;
	int form = argc > 1 ? FIND(argv[1], forms) : -1;
	Arena *arena = arena_new();
	const char *text = argc == 2 ? completion_text(arena, argv[1]) : NULL;
	if (form >= 0 && (argc == 2 || verb))
		text = verb ? page_text(arena, &forms[form], verb)
		            : overview_text(arena, &forms[form]);
	if (text)
		fputs(text, stdout);
	arena_free(arena);
	return !text ? STATUS_USAGE : fflush(stdout) ? STATUS_MACHINE : STATUS_DONE;
}

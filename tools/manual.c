// manual.c: at build time, writes a page of the manual to standard output: verbs.def read once
// more. usage: manual roff|markdown [VERB]      without a verb: the page of amosc itself
#include "tool.h"
#include <string.h>

static const struct Page {
	const char *name, *arguments;
	unsigned takes;
	const char *summary, *about, *example;
} pages[] = {
#define VERB(name, arguments, least, most, takes, summary, about, example)                         \
	{#name, arguments, COMMON | (takes), summary, about, example},
#include "verbs.def"
#undef VERB
};

static const struct {
	const char *name;
	int letter;
	unsigned group;
	const char *argument, *help;
} options[] = {
#define OPTION(name, letter, group, type, argument, help) {#name, letter, group, argument, help},
#include "verbs.def"
#undef OPTION
};

static const char ends[] =
    "0 done; 1 the model, data or an option's value is at fault; 2 usage; 3 the machine failed.";

// The option as typed: extra_l2 is --extra-l2.
static void write_name(const char *name, const char *dash)
{
	for (const char *c = name; *c; c++)
		if (*c == '_')
			fputs(dash, stdout);
		else
			putchar(*c);
}

// ---- for man(1) -----------------------------------------------------------------------

// A - is a hyphen there unless escaped.
static void write_roff(const char *text)
{
	for (const char *c = text; *c; c++)
		printf(*c == '-' ? "\\-" : *c == '\\' ? "\\e" : "%c", *c);
}

static void roff_option(int i)
{
	fputs(".TP\n", stdout);
	if (options[i].letter)
		printf("\\fB\\-%c\\fR, ", options[i].letter);
	fputs("\\fB\\-\\-", stdout);
	write_name(options[i].name, "\\-");
	fputs("\\fR", stdout);
	if (options[i].argument)
		printf("=\\fI%s\\fR", options[i].argument);
	putchar('\n');
	write_roff(options[i].help);
	fputs(".\n", stdout);
}

static void roff_overview(void)
{
	fputs(".TH AMOSC 1 \"\" amosc \"User Commands\"\n.SH NAME\n"
	      "amosc \\- trains an exported ONNX model\n"
	      ".SH SYNOPSIS\n.B amosc\n\\fIVERB\\fR ...\n.SH VERBS\n",
	      stdout);
	for (int i = 0; i < COUNT(pages); i++) {
		printf(".TP\n.BR amosc\\-%s (1)\n", pages[i].name);
		write_roff(pages[i].summary);
		putchar('\n');
	}
	printf(".SH EXIT STATUS\n%s\n", ends);
}

static void roff_page(const struct Page *page)
{
	printf(".TH AMOSC\\-%s 1 \"\" amosc \"User Commands\"\n.SH NAME\namosc\\-%s \\- ",
	       page->name, page->name);
	write_roff(page->summary);
	printf("\n.SH SYNOPSIS\n.B amosc %s\n%s [\\fIOPTION\\fR...]\n.SH DESCRIPTION\n", page->name,
	       page->arguments);
	write_roff(page->about);
	fputs("\n.SH EXAMPLE\n.EX\n", stdout);
	write_roff(page->example);
	fputs("\n.EE\n.SH OPTIONS\n", stdout);
	for (int i = 0; i < COUNT(options); i++)
		if (options[i].group & page->takes)
			roff_option(i);
	printf(".SH EXIT STATUS\n%s\n.SH SEE ALSO\n.BR amosc (1)\n", ends);
}

// ---- for docs/ ------------------------------------------------------------------------

// A | would end the table's cell.
static void write_cell(const char *text)
{
	for (const char *c = text; *c; c++)
		printf(*c == '|' ? "\\|" : "%c", *c);
}

static void markdown_option(int i)
{
	fputs("| ", stdout);
	if (options[i].letter)
		printf("`-%c`, ", options[i].letter);
	fputs("`--", stdout);
	write_name(options[i].name, "-");
	if (options[i].argument) {
		putchar('=');
		write_cell(options[i].argument);
	}
	fputs("` | ", stdout);
	write_cell(options[i].help);
	fputs(" |\n", stdout);
}

static void markdown_overview(void)
{
	fputs("# amosc\n\nTrains an exported ONNX model: compiled, with no framework behind it.\n\n"
	      "| verb | |\n|---|---|\n",
	      stdout);
	for (int i = 0; i < COUNT(pages); i++)
		printf("| [`amosc %s`](amosc-%s.md) | %s |\n", pages[i].name, pages[i].name,
		       pages[i].summary);
	printf("\nExit status: %s\n", ends);
}

static void markdown_page(const struct Page *page)
{
	printf("# amosc %s\n\n%s.\n\n```\namosc %s%s%s [OPTION...]\n```\n\n%s\n\n", page->name,
	       page->summary, page->name, *page->arguments ? " " : "", page->arguments,
	       page->about);
	printf("```\n%s\n```\n\n| option | |\n|---|---|\n", page->example);
	for (int i = 0; i < COUNT(options); i++)
		if (options[i].group & page->takes)
			markdown_option(i);
	printf("\nExit status: %s\n", ends);
}

int main(int argc, char **argv)
{
	const struct Page *page = NULL;
	for (int i = 0; argc == 3 && i < COUNT(pages); i++)
		if (!strcmp(pages[i].name, argv[2]))
			page = &pages[i];
	if (argc < 2 || (argc > 2 && !page))
		return STATUS_USAGE;
	bool roff = !strcmp(argv[1], "roff");
	if (page)
		(roff ? roff_page : markdown_page)(page);
	else
		(roff ? roff_overview : markdown_overview)();
	return fflush(stdout) ? STATUS_MACHINE : STATUS_DONE;
}

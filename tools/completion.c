// completion.c: writes the completion of bash, zsh and fish, from verbs.def and settings.def.
#include "manual.h"
#include <string.h>

// ---- what an option takes ---------------------------------------------------------------

// Returns a list in a sentence, such as "a, b or c", as words with blanks between them.
static const char *as_words(Arena *arena, const char *list)
{
	Text text = {.arena = arena};
	for (char *rest = copy_string(arena, list), *word; (word = strsep(&rest, " ,|"));)
		if (*word && strcmp(word, "or"))
			say(&text, "%s%s", text.at ? " " : "", word);
	return text.at;
}

// Returns the values of an option, separated by blanks; NULL: it takes others, or none.
static const char *values_of(Arena *arena, OptionName option)
{
	const char *argument = options[option].argument;
	if (option == OPT_optimizer)
		return as_words(arena, optimizer_names(arena, NULL));
	if (option == OPT_schedule)
		return as_words(arena, schedule_names(arena));
	if (option == OPT_after)
		return as_words(arena, pass_names(arena));
	bool some = argument && strchr(argument, '|');
	return some && !argument[strspn(argument, "abcdefghijklmnopqrstuvwxyz|")]
	           ? as_words(arena, argument)
	           : NULL;
}

static bool takes_file(OptionName option)
{
	return !strcmp(options[option].type, "text") || !strcmp(options[option].type, "list");
}

// Returns the text with a backslash before each of `letters`; quotes are those of a shell.
static const char *quoted(Arena *arena, const char *text, const char *letters, const char *quote)
{
	Text t = {.arena = arena};
	for (const char *c = text; *c; c++)
		if (*c == '\'')
			say(&t, "%s", quote);
		else
			say(&t, "%s%c", strchr(letters, *c) ? "\\" : "", *c);
	return t.at ? t.at : "";
}

// ---- bash -----------------------------------------------------------------------------

static const char bash_start[] =
    "# Completion of amosc for bash, written by its program manual.\n"
    "_amosc()\n{\n"
    "\tlocal cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]} words\n"
    "\tCOMPREPLY=()\n"
    "\tif [ \"$COMP_CWORD\" = 1 ]; then\n";
// An equals sign is a word of its own.
static const char bash_values[] = "\tif [ \"$option\" = = ]; then\n"
                                  "\t\toption=${COMP_WORDS[COMP_CWORD - 2]}\n"
                                  "\telif [ \"$cur\" = = ]; then\n"
                                  "\t\tcur=\n\tfi\n"
                                  "\tcase $option in\n";
static const char bash_end[] = "\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n"
                               "complete -o default -F _amosc amosc\n";

static void write_bash(Arena *arena, Text *to)
{
	say(to, "%s\t\tCOMPREPLY=($(compgen -W \"", bash_start);
	for (const Verb *v = verbs; v->name; v++)
		say(to, "%s ", v->name);
	say(to, "help --help --version\" -- \"$cur\"))\n\t\treturn\n\tfi\n%s", bash_values);
	for (OptionName i = 0; i < OPTIONS; i++)
		if (values_of(arena, i))
			say(to, "\t--%s) words=\"%s\" ;;\n", long_name(arena, i),
			    values_of(arena, i));
	say(to, "\t*)\n\t\t[[ $cur == -* ]] || return\n\t\tcase ${COMP_WORDS[1]} in\n");
	for (const Verb *v = verbs; v->name; v++) {
		say(to, "\t\t%s) words=\"", v->name);
		for (OptionName i = 0; i < OPTIONS; i++)
			if (options[i].group & v->takes)
				say(to, "--%s ", long_name(arena, i));
		say(to, "--help\" ;;\n");
	}
	say(to, "\t\tesac ;;\n\tesac\n%s", bash_end);
}

// ---- zsh ------------------------------------------------------------------------------

// An option that may be repeated begins with *.
static void write_zsh_option(Arena *arena, Text *to, OptionName i)
{
	const struct amos_option_row *row = &options[i];
	const char *name = long_name(arena, i), *values = values_of(arena, i);
	const char *equals = row->argument ? "=" : "";
	say(to, "\t\t'%s", strcmp(row->type, "list") ? "" : "*");
	if (row->letter)
		say(to, "'{-%c%s,--%s%s}'", row->letter, row->argument ? "+" : "", name, equals);
	else
		say(to, "--%s%s", name, equals);
	say(to, "[%s]", quoted(arena, option_brief(arena, i), "[]\\:", "'\\''"));
	if (row->argument)
		say(to, ":%s:", quoted(arena, row->argument, "\\:", "'\\''"));
	if (values)
		say(to, "(%s)", values);
	else if (row->argument && takes_file(i))
		say(to, "_files");
	say(to, "' \\\n");
}

static void write_zsh(Arena *arena, Text *to)
{
	say(to, "#compdef amosc\n# Completion of amosc for zsh, written by its program manual.\n"
	        "local -a verbs\nverbs=(\n");
	for (const Verb *v = verbs; v->name; v++)
		say(to, "\t'%s:%s'\n", v->name, quoted(arena, v->summary, "\\:", "'\\''"));
	say(to, ")\nif (( CURRENT == 2 )); then\n\t_describe verb verbs\n\treturn\nfi\n"
	        "shift words\n(( CURRENT-- ))\ncase $words[1] in\n");
	for (const Verb *v = verbs; v->name; v++) {
		say(to, "%s)\n\t_arguments \\\n", v->name);
		for (OptionName i = 0; i < OPTIONS; i++)
			if (options[i].group & v->takes)
				write_zsh_option(arena, to, i);
		say(to, "\t\t'--help[Print the options]' '*:file:_files' ;;\n");
	}
	say(to, "esac\n");
}

// ---- fish -----------------------------------------------------------------------------

static void write_fish_option(Arena *arena, Text *to, OptionName i)
{
	const struct amos_option_row *row = &options[i];
	const char *values = values_of(arena, i);
	say(to, "complete -c amosc -n '__fish_seen_subcommand_from");
	for (const Verb *v = verbs; v->name; v++)
		if (row->group & v->takes)
			say(to, " %s", v->name);
	say(to, "' -l %s", long_name(arena, i));
	if (row->letter)
		say(to, " -s %c", row->letter);
	if (values)
		say(to, " -x -a '%s'", values);
	else if (row->argument)
		say(to, takes_file(i) ? " -r" : " -x");
	say(to, " -d '%s'\n", quoted(arena, option_brief(arena, i), "\\", "\\'"));
}

static void write_fish(Arena *arena, Text *to)
{
	say(to, "# Completion of amosc for fish, written by its program manual.\n");
	for (const Verb *v = verbs; v->name; v++)
		say(to, "complete -c amosc -n __fish_use_subcommand -f -a %s -d '%s'\n", v->name,
		    quoted(arena, v->summary, "\\", "\\'"));
	for (OptionName i = 0; i < OPTIONS; i++)
		write_fish_option(arena, to, i);
}

const char *completion_text(Arena *arena, const char *shell)
{
	static const struct {
		const char *name;
		void (*write)(Arena *, Text *);
	} shells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};
	int which = FIND(shell, shells);
	Text text = {.arena = arena};
	if (which >= 0)
		shells[which].write(arena, &text);
	return text.at;
}

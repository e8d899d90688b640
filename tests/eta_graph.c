// eta_graph.c: reads a graph and the user's eta options from a file.
#include "eta_graph.h"
#include "files.h"
#include <string.h>

// Returns the rest of the first line that begins with `begin`; NULL: none.
static char *line_after(Arena *arena, const char *text, const char *begin)
{
	const char *at = strstr(text, begin);
	return at ? format(arena, "%.*s", (int)strcspn(at + strlen(begin), "\n"),
	                   at + strlen(begin))
	          : NULL;
}

const char *eta_line(Arena *arena, const char *name, const Eta *eta)
{
	Text slots = {.arena = arena};
	for (int a = 0; a < eta->slot.rank; a++)
		say(&slots, "%s%lld", a ? "," : "", (long long)eta->slot.dim[a]);
	return format(arena, "%s %s %s [%s]%s", name, eta->role, eta->formula,
	              slots.at ? slots.at : "", eta->sure ? "" : " unsure");
}

const char *structure_line(Arena *arena, const char *name, const Structure *of)
{
	Text line = {.arena = arena};
	say(&line, "%s%s%s depth %d", name, of->input ? " input" : "",
	    of->readout ? " readout" : "", of->depth);
	if (of->groups > 1)
		say(&line, " %lld groups", (long long)of->groups);
	if (of->use)
		say(&line, " %s", of->use);
	if (of->heads)
		say(&line, " %lld heads", (long long)of->heads);
	if (of->pieces.count)
		say(&line, " axis %d%s:", of->axis, of->interleaved ? " interleaved" : "");
	for (int i = 0; i < of->pieces.count; i++) {
		const ParamPiece *piece = &of->pieces.at[i];
		say(&line, " %s[%lld,%lld)", piece->use ? piece->use : "", (long long)piece->from,
		    (long long)piece->to);
		if (piece->heads)
			say(&line, "x%lld", (long long)piece->heads);
	}
	for (int i = 0; i < of->products.count; i++) {
		const ParamProduct *product = &of->products.at[i];
		say(&line, "; %s %s", product->kind, product->node);
		if (product->with)
			say(&line, " with %s", product->with);
	}
	return line.at;
}

// Adds the option in the line `begin`PATTERN=EXPRESSION.
static void add_override(Arena *arena, const char *text, const char *begin, Overrides *list)
{
	char *line = line_after(arena, text, begin), *equals = line ? strchr(line, '=') : NULL;
	if (!equals)
		return;
	*equals = 0;
	PUSH(arena, *list, ((Override){.pattern = line, .expr = equals + 1}));
}

EtaGraph read_eta_graph(Arena *arena, const char *path)
{
	EtaGraph graph = {.text = read_file(arena, path, NULL)};
	graph.g = parse_graph(arena, path, graph.text, book_builtin());
	graph.options.convention = line_after(arena, graph.text, "# convention ");
	add_override(arena, graph.text, "# eta ", &graph.options.eta);
	add_override(arena, graph.text, "# range ", &graph.options.range);
	add_override(arena, graph.text, "# slots ", &graph.options.slots);
	return graph;
}

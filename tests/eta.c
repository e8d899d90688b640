// eta.c: graphs in the notation (tests/eta/*) and the scales wanted of their parameters, written
// below each:
//   # want NAME ROLE FORMULA SLOTS [unsure]
// and what a person says about them:
//   # convention NAME
//   # eta PATTERN=EXPRESSION
// Takes the files as arguments. Every parameter must be wanted, and come out to the letter.
#include "passes.h"
#include <stdlib.h>
#include <string.h>

static int failures, checked;

static char *read_text(Arena *arena, const char *path)
{
	FILE *file = fopen(path, "rb");
	if (!file)
		fail(path, "cannot be opened");
	fseek(file, 0, SEEK_END);
	long size = ftell(file);
	rewind(file);
	char *text = take(arena, (size_t)size + 1);
	if (fread(text, 1, (size_t)size, file) != (size_t)size)
		fail(path, "cannot be read");
	fclose(file);
	return text;
}

// The rest of the first line that begins so; NULL when there is none.
static char *line_after(Arena *arena, const char *text, const char *begin)
{
	const char *at = strstr(text, begin);
	return at ? format(arena, "%.*s", (int)strcspn(at + strlen(begin), "\n"),
	                   at + strlen(begin))
	          : NULL;
}

static const char *got_line(Arena *arena, const char *name, const Eta *eta)
{
	Text slots = {.arena = arena};
	for (int a = 0; a < eta->slot.rank; a++)
		say(&slots, "%s%lld", a ? "," : "", (long long)eta->slot.dim[a]);
	return format(arena, "%s %s %s [%s]%s", name, eta->role, eta->formula,
	              slots.at ? slots.at : "", eta->sure ? "" : " unsure");
}

// A line `begin`PATTERN=EXPRESSION
static void add_wish(Arena *arena, const char *text, const char *begin, Overrides *list)
{
	char *line = line_after(arena, text, begin), *equals = line ? strchr(line, '=') : NULL;
	if (!equals)
		return;
	*equals = 0;
	PUSH(arena, *list, ((Override){.pattern = line, .expr = equals + 1}));
}

static void check_file(const char *path)
{
	Arena *arena = arena_new();
	char *text = read_text(arena, path);
	Graph *g = parse_graph(arena, path, text, book_builtin());
	Wishes wishes = {.convention = line_after(arena, text, "# convention ")};
	add_wish(arena, text, "# eta ", &wishes.eta);
	add_wish(arena, text, "# range ", &wishes.range);
	add_wish(arena, text, "# slots ", &wishes.slots);
	Eta *eta = eta_pass(arena, g, &wishes, NULL);
	Table *wanted = table_new(arena);
	int left = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (starts_with(line, "# want ")) {
			*table_cell_s(wanted, line + strlen("# want ")) = 1;
			left++;
		}
	for (int i = 0; i < g->slots.count; i++) {
		if (g->slots.at[i].kind != S_param)
			continue;
		const char *got = got_line(arena, g->slots.at[i].name, &eta[i]);
		checked++;
		left--;
		if (!table_find_s(wanted, got)) {
			failures++;
			printf("FAILED %s: got %s\n", path, got);
			for (int k = 0; k < eta[i].nwhy; k++)
				printf("    %s\n", eta[i].why[k]);
		}
	}
	if (left) {
		failures++;
		printf("FAILED %s: %d wants more than parameters\n", path, left);
	}
	arena_free(arena);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		check_file(argv[i]);
	printf("eta: %d parameters, %d wrong\n", checked, failures);
	return failures || !checked;
}

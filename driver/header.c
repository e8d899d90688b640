// header.c: writes the header of a compiled model: amos.h, and the model's symbol, inputs and
// outputs.
#include "driver.h"
#include <ctype.h>
#include <string.h>

extern const struct {
	const char *name, *text;
} header_pages[]; // amos.h and bindings/
extern const int header_npages;

typedef struct Header {
	Text text;
	const char *prefix;
	Table *taken; // identifiers
} Header;

// Writes the name of a tensor so that it cannot end a comment.
static void say_name(Text *t, const char *name)
{
	for (; *name; name++)
		say(t, *name == '/' && t->at[t->count - 1] == '*' ? " %c" : "%c", *name);
}

// Writes a line about a tensor. `limit`: integers are in [0, limit); 0: any.
static void say_tensor(Header *h, const char *name, Elem type, const Shape *shape, int64_t limit)
{
	say(&h->text, " *   ");
	say_name(&h->text, name);
	say(&h->text, ": %s", shape_text(h->text.arena, type, shape));
	if (limit && !is_float(type))
		say(&h->text, ", in [0, %lld)", (long long)limit);
	say(&h->text, "\n");
}

// Writes `PREFIX_KIND_NAME = number,` with a name that is an identifier and unique.
static void say_number(Header *h, const char *kind, const char *name, int number)
{
	char *word = format(h->text.arena, "%s_%s_%s", h->prefix, kind, name);
	for (char *c = word; *c; c++)
		*c = isalnum((unsigned char)*c) ? *c : '_';
	if (++*table_cell_s(h->taken, word) > 1)
		word = format(h->text.arena, "%s_%d", word, number);
	say(&h->text, "\t%s = %d,\n", word, number);
}

static void say_numbers(Header *h, const Graph *g, const Graph *outs)
{
	int inputs = 0, outputs = 0;
	say(&h->text, "/* Numbers of inputs and outputs. */\nenum {\n");
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == S_input)
			say_number(h, "input", g->slots.at[i].name, inputs++);
	for (int i = 0; outs && i < outs->outs.count; i++)
		if (is_own_out(outs->outs.at[i].name))
			say_number(h, "output", outs->outs.at[i].name, outputs++);
	say(&h->text, "\t%s_inputs = %d,\n\t%s_outputs = %d\n};\n", h->prefix, inputs, h->prefix,
	    outputs);
}

static void say_slots(Header *h, const Graph *g, SlotKind kind, const char *title)
{
	say(&h->text, " * %s:\n", title);
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == kind)
			say_tensor(h, g->slots.at[i].name, g->slots.at[i].type,
			           &g->slots.at[i].shape, g->slots.at[i].limit);
}

static void say_outputs(Header *h, const Graph *outs)
{
	say(&h->text, " * Outputs:\n");
	for (int i = 0; outs && i < outs->outs.count; i++) {
		const Val *v = val(outs, outs->outs.at[i].val);
		if (is_own_out(outs->outs.at[i].name))
			say_tensor(h, outs->outs.at[i].name, v->type, &v->shape, 0);
	}
}

const char *header_text(const Program *p, const char *prefix)
{
	Arena *arena = p->session->arena;
	const Graph *g = program_graph(p), *outs = NULL;
	Header h = {.text = {.arena = arena}, .prefix = prefix, .taken = table_new(arena)};
	Text *t = &h.text;
	for (int i = 0; i < p->entries.count; i++)
		if (!outs && !strcmp(p->entries.at[i].unit.name, "run"))
			outs = p->entries.at[i].unit.graph;
	say(t, "/* %s_model, compiled from ", prefix);
	say_name(t, basename(g->name));
	say(t, " by amosc %s, after the runtime's functions. */\n", AMOS_VERSION);
	if (chosen(p->session, OPT_freestanding))
		say(t, "#define AMOS_FREESTANDING /* the runtime is amos_core.c */\n");
	say(t, "%s\n", header_pages[0].text);
	say(t, "#ifndef AMOS_MODEL_%s\n#define AMOS_MODEL_%s\n", prefix, prefix);
	say(t, "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n/* The model, for amos_open() or "
	       "amos_open_in().\n *\n");
	const Sizes sizes = batch_sizes(p->session);
	for (int k = 0; k < sizes.count; k++)
		say(t, k ? ", %lld" : " * Batch sizes, for amos_set_batch(): %lld",
		    (long long)sizes.at[k]);
	say(t, sizes.count ? "\n" : "");
	if (p->update_only) {
		say(t,
		    " * It has amos_update() alone, which takes the gradients from the program.\n");
	} else {
		say_slots(&h, g, S_input, "Inputs");
		say_outputs(&h, outs);
	}
	say_slots(&h, g, S_param, "Parameters");
	say(t, " */\nextern const struct amos_model %s_model;\n\n", prefix);
	if (!p->update_only)
		say_numbers(&h, g, outs);
	say(t, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
	return t->at;
}

// ---- bindings -------------------------------------------------------------------------

// Keywords of C++20, and names that it or amos.h has in the global namespace.
static const char cpp_taken[] =
    " alignas alignof amos and and_eq asm auto bitand bitor bool break case catch char char16_t "
    "char32_t char8_t class co_await co_return co_yield compl concept const const_cast consteval "
    "constexpr constinit continue decltype default delete do double dynamic_cast else enum "
    "explicit export extern false float for friend goto if inline int long main mutable namespace "
    "new noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires return short signed sizeof static static_assert static_cast std "
    "struct switch template this thread_local throw true try typedef typeid typename union "
    "unsigned using virtual void volatile wchar_t while xor xor_eq ";

static const Binding bindings[] = {
    {"cpp", ".hpp", NULL, "cpp.hpp", false, cpp_taken},
    {"fortran", ".f90", NULL, "fortran.f90", true, NULL},
    {"python", "_model.py", ".so", "python.py", false, NULL}, // Python takes NAME.so for its own
    {"rust", ".rs", NULL, "rust.rs", false, NULL},
};

const Binding *binding_named(const Session *session, const char *name)
{
	Text known = {.arena = session->arena};
	for (int k = 0; k < COUNT(bindings); k++) {
		if (!strcmp(bindings[k].name, name))
			return &bindings[k];
		say(&known, "%s%s",
		    !k                        ? ""
		    : k + 1 < COUNT(bindings) ? ", "
		                              : " or ",
		    bindings[k].name);
	}
	bad_usage(session,
	          format(session->arena, "--bindings: expected %s, found '%s'", known.at, name));
}

void check_binding(const Session *session, const char *name, const char *path, const char *prefix)
{
	const Binding *b = binding_named(session, name);
	const char *needs = b->needs ? b->needs : "";
	bool library = ends_with(path, ".o") || ends_with(path, ".a") || ends_with(path, ".so");
	if (!library || !ends_with(path, needs))
		bad_usage(session,
		          format(session->arena, "--bindings %s: expected -o NAME%s, found '%s'",
		                 name, b->needs ? b->needs : ".so, .a or .o", path));
	if (b->letter && (!isalpha((unsigned char)*prefix) || strlen(prefix) > 31))
		bad_usage(session, format(session->arena,
		                          "--bindings %s: expected a --name of at most 31 "
		                          "characters that begins with a letter, found '%s'",
		                          name, prefix));
	if (b->taken && strstr(b->taken, format(session->arena, " %s ", prefix)))
		bad_usage(session, format(session->arena,
		                          "--bindings %s: '%s' has another meaning there" HELP
		                          "choose another --name",
		                          name, prefix));
}

static const char *page_named(const char *name)
{
	for (int k = 0; k < header_npages; k++)
		if (!strcmp(header_pages[k].name, name))
			return header_pages[k].text;
	bug("no page '%s'", name);
}

const char *binding_text(Arena *arena, const Binding *b, const char *stem, const char *prefix)
{
	const char *slash = strrchr(stem, '/'), *file = slash ? slash + 1 : stem, *next;
	Text text = {.arena = arena};
	for (const char *at = page_named(b->text); *at; at = next) {
		bool is_file = starts_with(at, "@FILE@"), is_id = starts_with(at, "@ID@");
		next = at + (is_file ? strlen("@FILE@") : is_id ? strlen("@ID@") : 1);
		say(&text, is_file || is_id ? "%s" : "%.1s", is_file ? file : is_id ? prefix : at);
	}
	return text.at;
}

// text.c: writes graphs as text and reads them.
// The text that is written can be read back, and is then written the same. One line per slot,
// value, output or store:
//   graph NAME [apart | plain] [wide] [products TYPE] [unaliased]
//     apart: attend is decomposed; plain: every composite is; wide: f32 is computed as f64;
//     products: pass `precision` rounds operands of products to this type; unaliased: see
//     graph_unalias
//   slot NAME : KIND TYPE [from INITIALIZER] [limit N] [ignore N] [counts] [= {number}]  # why
//     from "": in no initializer
//   %3 = dot(%1, w) : TYPE [pitch N]  # operator node
//   %4 = const f32[2] {1, 2}        {0 *}: all elements are 0
//   %5 = loop(%1, x; [9,1,0,0,0]) : TYPE   followed by the lines of its body and `end`
//   out NAME = %3
//   store NAME = %4
// Slots are written by name; rank-0 constants next to a value of their type as numbers.
#include "ir.h"
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const plains[] = {
    [DECOMPOSED_NONE] = "", [DECOMPOSED_ATTEND] = " apart", [DECOMPOSED_ALL] = " plain"};
static const char *const kinds[] = {
    [S_input] = "input",   [S_param] = "param", [S_frozen] = "frozen",
    [S_buffer] = "buffer", [S_state] = "state", [S_grad] = "grad"};

// ---- printing -------------------------------------------------------------------------

static void say_name(Text *t, const char *s)
{
	// A plain name: identifiers with dots between them.
	bool plain = *s && strcmp(s, "inf") && strcmp(s, "nan"), start = true;
	for (const char *c = s; plain && *c; c++) {
		unsigned char at = (unsigned char)*c;
		plain =
		    isalpha(at) || at == '_' || (!start && (isdigit(at) || (at == '.' && c[1])));
		start = false;
	}
	if (plain) {
		say(t, "%s", s);
		return;
	}
	say(t, "\"");
	for (; *s; s++)
		say(t, *s == '\n' ? "\\n" : *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
	say(t, "\"");
}

char *name_text(Arena *arena, const char *name)
{
	Text t = {.arena = arena};
	say_name(&t, name);
	return t.at;
}

// Writes the shortest decimal that reads back as x (rounded to f32, except for f64).
static void say_number(Text *t, Elem type, double x)
{
	char s[40];
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(s, sizeof s, "%.*g", digits, x);
		double back = strtod(s, NULL);
		if (back == x || isnan(x) || (type != E_f64 && (float)back == (float)x))
			break;
	}
	say(t, "%s", isnan(x) ? "nan" : s);
}

static void say_element(Text *t, const Val *v, int64_t i)
{
	if (is_float(v->type))
		say_number(t, v->type, const_at(v, i));
	else if (elems[v->type].cls == 'u')
		say(t, "%" PRIu64, (uint64_t)const_int_at(v, i));
	else
		say(t, "%" PRId64, const_int_at(v, i));
}

static void say_elements(Text *t, const Val *v)
{
	int64_t count = count_of(&v->shape);
	size_t size = (size_t)elems[v->type].bytes;
	bool same = count > 1;
	for (int64_t i = 1; same && i < count; i++)
		same = !memcmp(v->data, (const char *)v->data + (size_t)i * size, size);
	say(t, " {");
	for (int64_t i = 0; i < (same ? 1 : count); i++) {
		if (i > 0)
			say(t, ", ");
		say_element(t, v, i);
	}
	say(t, same ? " *}" : "}");
}

// True if operand k of v may be written as a number, which must read back as the same constant.
static bool bare_number(const Graph *g, const Val *v, int k)
{
	const Val *x = val(g, v->in[k]);
	if (x->op != O_const || x->shape.rank > 0 || prims[v->op].cls != C_map || v->nin != 2)
		return false;
	const Val *other = val(g, v->in[1 - k]);
	double d = const_at(x, 0);
	return other->op != O_const && other->type == x->type && isfinite(d) && fabs(d) < 1e15;
}

void say_ref(Text *t, const Graph *g, const int *number, Ref r)
{
	const Val *v = val(g, r);
	if (v->op == O_slot)
		say_name(t, g->slots.at[v->attr->i[0]].name);
	else
		say(t, "%%%d", number[r]);
}

static void say_attrs(Text *t, const Val *v)
{
	Item item[ATTRIBUTES];
	int n = attr_split(v->op, v->attr, item);
	for (int k = 0; k < n; k++) {
		say(t, k ? ", " : "; ");
		if (item[k].kind == I_list) {
			say(t, "[");
			for (int i = 0; i < item[k].n; i++)
				say(t, i ? ",%" PRId64 : "%" PRId64, item[k].i[i]);
			say(t, "]");
		} else if (v->op == O_act) {
			say(t, "%s", acts[(int)item[k].x].name);
		} else if (v->op == O_cast) {
			say(t, "%s", elems[(int)item[k].x].name);
		} else {
			say_number(t, E_f64, item[k].x);
		}
	}
}

static void say_value(Text *t, const Graph *g, const int *number, const Val *v)
{
	if (v->op == O_const) {
		say(t, "const %s", shape_text(t->arena, v->type, &v->shape));
		say_elements(t, v);
		return;
	}
	say(t, "%s(", prims[v->op].name);
	for (int k = 0; k < v->nin; k++) {
		if (k > 0)
			say(t, ", ");
		if (bare_number(g, v, k))
			say_element(t, val(g, v->in[k]), 0);
		else
			say_ref(t, g, number, v->in[k]);
	}
	say_attrs(t, v);
	say(t, ") : %s", shape_text(t->arena, v->type, &v->shape));
	if (v->pitch)
		say(t, " pitch %" PRId64, v->pitch);
}

// Returns the initializer that a slot is in unless its line says `from`; "": none.
static const char *usual_file(const Slot *s)
{
	return s->kind == S_input || s->kind == S_state ? "" : s->name;
}

static void say_slot(Text *t, const Slot *s)
{
	const char *file = s->file ? s->file : "";
	say(t, "slot ");
	say_name(t, s->name);
	say(t, " : %s %s", kinds[s->kind], shape_text(t->arena, s->type, &s->shape));
	if (strcmp(file, usual_file(s)) != 0) {
		say(t, " from ");
		say_name(t, file);
	}
	if (s->limit)
		say(t, " limit %" PRId64, s->limit);
	if (s->ignore)
		say(t, " ignore %" PRId64, s->ignore);
	say(t, s->counts ? " counts" : "");
	if (s->init && (count_of(&s->shape) == 1 || s->kind == S_state)) {
		say(t, " =");
		say_elements(t, &(Val){.type = s->type, .shape = s->shape, .data = s->init});
	}
	say(t, s->why ? "  # %s\n" : "\n", s->why);
}

// Numbers live values from 1 in order, without slots, and constants that are only written as
// numbers.
int *number_values(Arena *arena, const Graph *g)
{
	const int *live = graph_uses(arena, g);
	bool *line = NEWS(arena, bool, g->nval);
	int *number = NEWS(arena, int, g->nval), n = 0;
	for (int r = 1; r < g->nval; r++) {
		line[r] |= val(g, r)->op != O_const && val(g, r)->op != O_slot;
		for (int k = 0; live[r] && k < val(g, r)->nin; k++)
			line[val(g, r)->in[k]] |= !bare_number(g, val(g, r), k);
	}
	for (int i = 0; i < g->outs.count; i++)
		line[g->outs.at[i].val] = true;
	for (int i = 0; i < g->stores.count; i++)
		line[g->stores.at[i].val] = true;
	for (int r = 1; r < g->nval; r++)
		if (live[r] && line[r] && val(g, r)->op != O_slot)
			number[r] = ++n;
	return number;
}

// Writes the lines of a graph after its first.
static void say_graph(Text *t, const Graph *g)
{
	const int *number = number_values(t->arena, g);
	for (int i = 0; i < g->slots.count; i++)
		say_slot(t, &g->slots.at[i]);
	for (int r = 1; r < g->nval; r++) {
		const Val *v = val(g, r);
		const Node *node = &g->nodes->list.at[v->from];
		if (!number[r])
			continue;
		say(t, "%%%d = ", number[r]);
		say_value(t, g, number, v);
		if (v->from)
			say(t, "  # %s %s", name_text(t->arena, node->op),
			    name_text(t->arena, node->name));
		say(t, "\n");
		if (v->op == O_loop) {
			say_graph(t, v->data);
			say(t, "end\n");
		}
	}
	for (int i = 0; i < g->outs.count + g->stores.count; i++) {
		int s = i - g->outs.count;
		say(t, s < 0 ? "out " : "store ");
		say_name(t, s < 0 ? g->outs.at[i].name : g->slots.at[g->stores.at[s].slot].name);
		say(t, " = ");
		say_ref(t, g, number, s < 0 ? g->outs.at[i].val : g->stores.at[s].val);
		say(t, "\n");
	}
}

char *graph_text(Arena *arena, const Graph *g)
{
	Text t = {.arena = arena};
	say(&t, "graph ");
	say_name(&t, g->name ? g->name : "");
	say(&t, "%s%s", plains[g->plain], g->wide ? " wide" : "");
	if (g->products)
		say(&t, " products %s", elems[g->products].name);
	if (g->loss_scale)
		say(&t, " scale %.17g", g->loss_scale);
	say(&t, "%s\n", g->unaliased ? " unaliased" : "");
	say_graph(&t, g);
	return t.at;
}

// ---- reading --------------------------------------------------------------------------

typedef struct Reader {
	Lexer *l;
	Graph *g;
	Table *named; // %3 -> Ref
	Table *nodes; // "operator name" -> number
} Reader;

static Elem read_elem(Lexer *l)
{
	const char *name = lexer_name(l);
	int type = FIND(name, elems);
	if (type < 0)
		fail(lexer_place(l), "unknown type '%s'", name);
	return (Elem)type;
}

static Elem read_type(Lexer *l, Shape *shape)
{
	Elem type = read_elem(l);
	*shape = (Shape){0};
	if (lexer_is(l, "[") && lexer_dims(l, shape))
		fail(lexer_place(l), "a dimension of a value is marked");
	return type;
}

// Reads "{1, 2}" or "{0 *}" as bytes of `type`.
static void *read_elements(Lexer *l, Elem type, const Shape *shape)
{
	int64_t count = count_of(shape), n = 0;
	if (count < 0 || count > INT32_MAX)
		fail(lexer_place(l), "a constant of %lld elements", (long long)count);
	Array a = {.type = type, .shape = *shape};
	bool real = is_float(type);
	a.f = NEWS(l->arena, double, count + 1);
	lexer_expect(l, "{");
	while (!lexer_take(l, "}")) {
		if (n > 0 && lexer_take(l, "*")) {
			for (; n < count; n++)
				a.i[n] = a.i[0];
			continue;
		}
		if (n > 0)
			lexer_expect(l, ",");
		if (n == count)
			fail(lexer_place(l), "more than %lld elements", (long long)count);
		if (real)
			a.f[n++] = lexer_number(l);
		else
			a.i[n++] = lexer_integer(l);
	}
	if (n != count)
		fail(lexer_place(l), "found %lld elements, expected %lld", (long long)n,
		     (long long)count);
	void *bytes = take(l->arena, (size_t)count * (size_t)elems[type].bytes + 1);
	array_to(&a, bytes);
	return bytes;
}

static void read_slot(Reader *r, Lexer *l)
{
	Slot s = {0};
	s.name = lexer_name(l);
	lexer_expect(l, ":");
	s.kind = (SlotKind)lexer_choice(l, COUNT(kinds), kinds);
	s.type = read_type(l, &s.shape);
	const char *file = lexer_take(l, "from") ? lexer_name(l) : usual_file(&s);
	s.file = *file ? file : NULL;
	if (lexer_take(l, "limit"))
		s.limit = lexer_integer(l);
	if (lexer_take(l, "ignore"))
		s.ignore = lexer_integer(l);
	s.counts = lexer_take(l, "counts");
	if (lexer_take(l, "="))
		s.init = read_elements(l, s.type, &s.shape);
	s.why = *l->comment ? l->comment : NULL;
	add_slot(r->g, s);
}

static Ref look_name(void *context, const char *name)
{
	Reader *r = context;
	const uint64_t *cell = table_find_s(r->named, name);
	if (cell)
		return (Ref)*cell;
	int slot = *name == '%' ? -1 : find_slot(r->g, name);
	return slot < 0 ? 0 : put_slot(r->g, slot);
}

static Ref read_expr(Reader *r, const char *place, const Expr *e)
{
	return eval_expr(r->g, place, e, look_name, r);
}

static void read_line(Reader *r, Lexer *l);

// Reads the lines of the body of a loop.
static Ref read_loop(Reader *r, Lexer *l, const char *place, const Expr *e)
{
	Item list = {.kind = I_none};
	if (e->nattr)
		list = eval_item(&(Scope){.g = r->g, .where = place}, e->attr[0]);
	Attr attr = attr_join(&(Scope){.where = place}, O_loop, 0, e->nattr, &list);
	if (attr.n != 5)
		fail(place, "loop: expected 5 numbers as attributes, found %d", attr.n);
	for (int k = 1; k < attr.n; k++) // only a trip count may be larger
		if (attr.i[k] < 0 || attr.i[k] > INT32_MAX)
			fail(place, "loop: %lld is out of range", (long long)attr.i[k]);
	Ref *in = NEWS(l->arena, Ref, e->nin + 1);
	for (int k = 0; k < e->nin; k++)
		in[k] = read_expr(r, place, e->in[k]);
	lexer_end_line(l);
	Reader inner = {l, graph_inside(r->g->arena, r->g), table_new(l->arena), r->nodes};
	while (!lexer_take(l, "end")) {
		if (l->kind == T_end)
			fail(place, "the body of this loop has no end");
		read_line(&inner, l);
	}
	LoopInfo loop = loop_of(&(Val){.attr = &attr, .data = inner.g});
	if (loop_operands(&loop) != e->nin)
		fail(place, "found %d %s, expected %d for this body", e->nin,
		     PLURAL(e->nin, "operand", "operands"), loop_operands(&loop));
	return put_loop(r->g, &loop, in);
}

// Returns the number of the node that the comment of a value, "OPERATOR NAME", names.
static int read_node(Reader *r, const char *comment)
{
	if (!*comment)
		return 0;
	uint64_t *cell = table_cell_s(r->nodes, comment);
	if (!*cell) {
		Lexer *l = lexer_open(r->g->arena, r->l->where, comment);
		const char *op = lexer_name(l);
		*cell = (uint64_t)add_node(r->g, lexer_name(l), op);
	}
	return (int)*cell;
}

static int64_t read_pitch(Lexer *l, const Val *v)
{
	int64_t pitch = lexer_integer(l), row = last_dim(&v->shape);
	if (v->op != O_cast || !v->shape.rank || pitch < row || pitch > 2 * row)
		fail(lexer_place(l), "a pitch of %lld for rows of %lld elements", (long long)pitch,
		     (long long)row);
	return pitch;
}

static void read_value(Reader *r, Lexer *l, const char *place)
{
	const char *name = lexer_name(l);
	const void *bytes = NULL; // const
	const Expr *e = NULL;     // others
	Elem type = E_f32, declared = ELEMS;
	Shape shape, expected;
	lexer_expect(l, "=");
	if (lexer_take(l, "const")) {
		type = read_type(l, &shape);
		bytes = read_elements(l, type, &shape);
	} else {
		e = parse_expr(l);
	}
	if (lexer_take(l, ":"))
		declared = read_type(l, &expected);
	r->g->from = read_node(r, l->comment);
	Ref ref = bytes                                  ? put_const(r->g, type, shape, bytes)
	          : e->kind == X_call && e->op == O_loop ? read_loop(r, l, place, e)
	                                                 : read_expr(r, place, e);
	const Val *v = val(r->g, ref);
	if (declared < ELEMS && (declared != v->type || !same_shape(&expected, &v->shape)))
		fail(place, "%s is %s, not %s", name, shape_text(l->arena, v->type, &v->shape),
		     shape_text(l->arena, declared, &expected));
	if (lexer_take(l, "pitch"))
		set_pitch(r->g, ref, read_pitch(l, v));
	*table_cell_s(r->named, name) = ref;
	r->g->from = 0;
}

static void read_line(Reader *r, Lexer *l)
{
	const char *place = lexer_place(l);
	if (lexer_take(l, "slot")) {
		read_slot(r, l);
	} else if (lexer_take(l, "out")) {
		const char *name = lexer_name(l);
		lexer_expect(l, "=");
		add_out(r->g, name, read_expr(r, place, parse_expr(l)));
	} else if (lexer_take(l, "store")) {
		const char *name = lexer_name(l);
		int slot = find_slot(r->g, name);
		if (slot < 0)
			fail(place, "unknown slot '%s'", name);
		lexer_expect(l, "=");
		add_store(r->g, slot, read_expr(r, place, parse_expr(l)));
	} else {
		read_value(r, l, place);
	}
	lexer_end_line(l);
}

Graph *lexer_graph(Lexer *l, const Book *book)
{
	Arena *arena = l->arena;
	lexer_expect(l, "graph");
	Reader r = {l, graph_new(arena, lexer_name(l), book), table_new(arena), table_new(arena)};
	if (lexer_take(l, "apart"))
		r.g->plain = DECOMPOSED_ATTEND;
	else if (lexer_take(l, "plain"))
		r.g->plain = DECOMPOSED_ALL;
	bool wide = lexer_take(l, "wide");
	if (lexer_take(l, "products"))
		r.g->products = read_elem(l);
	if (lexer_take(l, "scale"))
		r.g->loss_scale = lexer_number(l);
	r.g->unaliased = lexer_take(l, "unaliased");
	if (l->kind == T_line)
		lexer_next(l);
	while (l->kind != T_end && !lexer_is(l, "plan") && !lexer_is(l, "entry"))
		read_line(&r, l);
	r.g->wide = wide; // casts are written explicitly
	return r.g;
}

Graph *parse_graph(Arena *arena, const char *where, const char *text, const Book *book)
{
	Lexer *l = lexer_open(arena, where, text);
	Graph *g = lexer_graph(l, book);
	if (l->kind != T_end)
		fail(lexer_place(l), "expected the end of the graph, found '%s'", l->word);
	return g;
}

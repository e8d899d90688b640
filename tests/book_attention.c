// book_attention.c: checks which attention patterns of exporters the door recognizes.
#include "book.h"
#include <string.h>

// Patterns of exporters: slots, an expression, and the result of the door: the number of operands
// of attend and its attributes; "": no attend.
static const struct {
	const char *line, *expected;
} sites[] = {
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 = dot(softmax(dot(q, swap(k)); -1), v)", "3; 1, 0, 0"},
    {"q:2,3,4 k:2,5,4 v:2,5,6 = dot(softmax(dot(q, swap(k)) * 0.5; -1), v)", "3; 0.5, 0, 0"},
    {"q:2,3,4 k:2,4,5 v:2,5,6 = dot(softmax(dot(q, k) / 4; -1), v)", "3; 0.25, 0, 0"},
    {"q:2,3,4 k:2,5,4 v:2,5,6 = dot(softmax(dot(q * 0.5, swap(k * 0.5)); -1), v)", "3; 0.25, 0, 0"},
    {"q:2,3,2,4 k:2,5,2,4 v:2,5,2,6 = dot(softmax(dot(permute(q; [0,2,1,3]) * 0.5,"
     " permute(k; [0,2,3,1]) * 0.5); -1), permute(v; [0,2,1,3]))",
     "3; 0.25, 0, 0"},
    {"q:2,4,3,4 k:2,2,5,4 v:2,2,5,6 = dot(softmax(dot(q, swap(reshape(expand(reshape(k;"
     " [2,2,1,5,4]); [2,2,2,5,4]); [2,4,5,4]))) * 0.5; -1),"
     " reshape(expand(reshape(v; [2,2,1,5,6]); [2,2,2,5,6]); [2,4,5,6]))",
     "3; 0.5, 0, 0"},
    // biases
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 y:1,2,3,5 = dot(softmax(dot(q, swap(k)) + y; -1), v)",
     "4; 1, 0, 0"},
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 y:2,1,1,5 = dot(softmax(y + dot(q, swap(k)) * 0.5; -1), v)",
     "4; 0.5, 0, 0"},
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 y:1,2,3,5 p:2,1,1,5 = dot(softmax((dot(q, swap(k)) + y)"
     " + hidden(q, or(p, iota(; 3, [1,1,1,5]) == 0), 0, -1e9); -1), v)",
     "4; 1, 0, 0"},
    {"q:4,3,4 k:4,5,4 v:4,5,6 y:2,1,3,5 = dot(softmax(reshape(reshape(dot(q, swap(k));"
     " [2,2,3,5]) + y; [4,3,5]); -1), v)",
     "4; 1, 0, 0"},
    {"q:4,2,3,4 k:4,2,5,4 v:4,2,5,6 y:1,2,3,5 z:1,2,1,3,5 = dot(softmax(reshape("
     "reshape(dot(q, swap(k)) * 0.5 + y; [2,2,2,3,5]) + z; [4,2,3,5]); -1), v)",
     "4; 0.5, 0, 0"},
    // masked scores
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 p:2,1,1,5 = dot(softmax(select(or(p, iota(; 3, [1,1,1,5])"
     " == 0), dot(q, swap(k)) * 0.5, -inf); -1), v)",
     "5; 0.5, 0, 0"},
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 p:2,1,3,5 y:2,2,1,5 = dot(softmax(select(and(p,"
     " iota(; 3, [1,1,1,5]) > 0), -3e38, dot(q, swap(k)) + y); -1), v)",
     "5; 1, 0, 0"},
    {"q:2,2,3,4 k:2,2,5,4 v:2,2,5,6 p:2,1,1,5 = dot(zeroed(softmax(select(or(p,"
     " iota(; 3, [1,1,1,5]) == 0), dot(q, swap(k)), -inf); -1)), v)",
     "5; 1, 0, 1"},
    {"q:2,3,4 k:2,5,4 v:2,5,6 = dot(zeroed(softmax(dot(q * 0.5, swap(k) * 0.5); -1)), v)",
     "3; 0.25, 0, 1"},
    // split and joined
    {"q:4,3,4 k:4,5,4 v:4,5,6 y:2,1,3,5 p:2,1,3,5 = dot(softmax(reshape((reshape(dot(q,"
     " swap(k)); [2,2,3,5]) + y) + hidden(q, p, 0, -1e9); [4,3,5]); -1), v)",
     "4; 1, 0, 0"},
    {"q:4,3,4 k:4,5,4 v:4,5,6 y:4,1,5 p:2,1,3,5 = dot(reshape(softmax(select(and(p,"
     " iota(; 3, [1,1,1,5]) > 0), -3e38, reshape(dot(q, swap(k)) * 0.5 + y; [2,2,3,5])); -1);"
     " [4,3,5]), v)",
     "5; 0.5, 0, 0"},
    {"q:4,3,4 k:4,5,4 v:4,5,6 y:4,3,5 p:2,1,3,5 = dot(reshape(select(p, 0, softmax(select(p,"
     " -3e38, reshape(dot(q, swap(k)) + y; [2,2,3,5])); -1)); [4,3,5]), v)",
     "5; 1, 0, 1"},
    {"q:4,5,4 k:4,5,4 v:2,2,5,6 y:2,1,1,5 = dot(softmax(select(iota(; 3, [1,1,1,5])"
     " <= iota(; 2, [1,1,5,1]), reshape(dot(q, swap(k)) * 0.5; [2,2,5,5]), -3e38) + y; -1), v)",
     "5; 0.5, 0, 0"},
    // causal masks
    {"q:2,2,5,4 k:2,2,5,4 v:2,2,5,6 = dot(softmax(select(iota(; 3, [1,1,1,5])"
     " <= iota(; 2, [1,1,5,1]), dot(q, swap(k)), -inf); -1), v)",
     "3; 1, 1, 0"},
    {"q:2,3,4 k:2,5,4 v:2,5,6 = dot(softmax(dot(q, swap(k)) + hidden(q, iota(; 2, [1,1,5])"
     " > iota(; 1, [1,3,1]) + 2, -3e38, 0); -1), v)",
     "3; 1, 1, 0"},
    {"q:2,3,4 k:2,5,4 v:2,5,6 = dot(softmax(dot(q, swap(k)) + hidden(q, iota(; 2, [1,1,5])"
     " > iota(; 1, [1,3,1]), -inf, 0); -1), v)",
     "4; 1, 0, 0"},
    {"q:1,300,2 k:1,300,2 v:1,300,2 = dot(softmax(select(iota(; 2, [1,1,300])"
     " <= iota(; 1, [1,300,1]), dot(q, swap(k)), -3e38); -1), v)",
     "3; 1, 1, 0"},
    // similar patterns that are not attention
    {"q:2,3,4 k:2,3,4 v:2,3,6 = dot(softmax(dot(q, swap(k)); 1), v)", ""},
    {"q:2,3,4 k:2,3,4 v:2,3,6 = dot(softmax(dot(q, swap(k)); [1,2]), v)", ""},
    {"q:2,3,4 k:2,5,4 v:2,5,6 y:1,1,5 = dot(softmax(dot(q, swap(k)) * y; -1), v)", ""},
    {"q:2,3,4 k:2,5,4 v:2,3,6 = dot(swap(softmax(dot(q, swap(k)); -1)), v)", ""},
    {"q:2,3,4 k:2,5,4 v:2,6,3 = dot(v, softmax(dot(q, swap(k)); -1))", ""},
    {"q:3,4 k:5,4 v:5,6 = dot(softmax(dot(q, swap(k)); -1), v)", ""},
    {"q:1,3,4 k:1,5,4 v:1,5,6 y:2,3,5 = dot(softmax(dot(q, swap(k)) + y; -1), v)", ""},
    {"q:2,3,4 k:2,5,4 v:2,5,6 p:2,1,5 = dot(softmax(select(p, dot(q, swap(k)), -1e4); -1), v)", ""},
    {"q:2,3,4 k:2,5,4 v:2,5,6 y:2,3,5 = dot(softmax(act(dot(q, swap(k)) + y; tanh); -1), v)", ""},
};

static const char *attend_in(Arena *arena, const Graph *g)
{
	const int *live = graph_uses(arena, g);
	const char *found = "";
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		if (live[r] && v->op == O_attend)
			found = format(arena, "%d; %g, %d, %d", v->nin, v->attr->x,
			               (int)v->attr->i[0], (int)v->attr->i[1]);
	}
	return found;
}

void test_attention(void)
{
	for (int i = 0; i < COUNT(sites); i++) {
		Arena *arena = arena_new();
		Array slot[CASE_SLOTS];
		uint64_t keep = seed;
		Graph *g = case_loss(arena, sites[i].line, slot);
		seed = keep;
		Graph *apart = case_loss(arena, format(arena, "plain %s", sites[i].line), slot);
		const char *found = attend_in(arena, g);
		CHECK(!strcmp(found, sites[i].expected), "%s: wanted attend '%s', found '%s'",
		      sites[i].line, sites[i].expected, found);
		check_same(arena, "attend", sites[i].line, apart, g, slot, 1e-9);
		arena_free(arena);
	}
	printf("%d sites of attention\n", COUNT(sites));
}

// override.c: applies --eta, --range and --slots.
// Input: Wishes, and what was inferred. Output: the same with the user's values, which are also
// given as the reason. Invariant: the later of two options wins; one that matches nothing is an
// error.
#include "analysis.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *suggest_slot(const Graph *g, SlotKind kind, const char *pattern)
{
	VEC(const char *) names = {0};
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == kind)
			PUSH(g->arena, names, g->slots.at[i].name);
	return suggest(g->arena, pattern, names.count, names.at);
}

typedef struct Hits { // the parameters that a pattern matches
	const Graph *g;
	const char *option;
	const Override *wish;
	int next, count;
} Hits;

static int next_hit(Hits *h) // -1: no more
{
	for (; h->next < h->g->slots.count; h->next++) {
		const Slot *slot = &h->g->slots.at[h->next];
		bool same = h->wish->report ? !strcmp(h->wish->pattern, slot->name)
		                            : matches(h->wish->pattern, slot->name);
		if (slot->kind != S_param || !same)
			continue;
		h->count++;
		return h->next++;
	}
	if (!h->count)
		fail(h->wish->pattern, "%s matches no parameter; %s", h->option,
		     suggest_slot(h->g, S_param, h->wish->pattern));
	return -1;
}

// ---- eta ------------------------------------------------------------------------------

static double positive(const Override *wish, const char *expression, double x)
{
	if (!(x > 0) || !isfinite(x))
		fail(wish->pattern,
		     "eta '%s' is not a positive number; write one such as 'sqrt(1/768)'",
		     expression);
	return x;
}

static bool close_to(Surd eta, double x)
{
	return fabs(eta.value - x) <= 1e-8 * x;
}

// True if a report says what is inferred.
static bool agrees(const Eta *eta, const Override *wish, double x)
{
	bool answered = wish->sure && !eta->sure;
	if (!wish->report || answered || (wish->count > 0) != (eta->nparts > 0))
		return false;
	if (!wish->count)
		return close_to(eta->eta, x);
	int64_t at = 0;
	for (int part = 0; part < eta->nparts; part++)
		for (int64_t i = 0; i < eta->counts[part]; i++, at++)
			if (at >= wish->count || !close_to(eta->parts[part].eta, wish->along[at]))
				return false;
	return at == wish->count && eta->axis == wish->axis;
}

// Runs of equal numbers become parts.
static void give_parts(Arena *arena, const Override *wish, Eta *eta)
{
	Text formula = {.arena = arena};
	Eta *parts = NEWS(arena, Eta, wish->count);
	int64_t *counts = NEWS(arena, int64_t, wish->count);
	int n = 0;
	for (int64_t i = 0; i < wish->count; i++) {
		double x = positive(wish, "0", wish->along[i]);
		if (!n || !close_to(parts[n - 1].eta, x)) {
			parts[n] = *eta;
			parts[n].eta = surd_near(x);
			parts[n].formula = surd_text(arena, parts[n].eta, 0);
			say(&formula, "%s%s", n ? "|" : "", parts[n].formula);
			n++;
		}
		counts[n - 1]++;
	}
	eta->eta = parts[0].eta;
	eta->formula = formula.at;
	eta->axis = wish->axis;
	eta->nparts = n > 1 ? n : 0;
	eta->counts = counts;
	eta->parts = parts;
}

static void give_eta(Arena *arena, const Override *wish, double x, Eta *eta)
{
	static const char *const why[] = {"given by --eta"};
	eta->sure = true;
	eta->question = NULL;
	eta->nparts = 0;
	eta->source = eta->asker = NULL;
	eta->why = (const char **)take_copy(arena, why, sizeof why);
	eta->nwhy = COUNT(why);
	if (wish->count) {
		give_parts(arena, wish, eta);
		return;
	}
	eta->eta = surd_near(x);
	eta->formula = wish->report ? surd_text(arena, eta->eta, 0) : wish->expr;
}

static void want_length(const Slot *slot, const Override *wish)
{
	if (wish->count &&
	    (wish->axis >= slot->shape.rank || slot->shape.dim[wish->axis] != wish->count))
		fail(slot->name, "eta has %lld numbers along axis %d, which do not broadcast to it",
		     (long long)wish->count, wish->axis);
}

void apply_etas(Arena *arena, const Graph *g, Eta *eta, const Overrides *list)
{
	for (int k = 0; k < list->count; k++) {
		const Override *wish = &list->at[k];
		double x = wish->count ? 0
		                       : positive(wish, wish->expr,
		                                  book_number(arena, wish->pattern, wish->expr));
		Hits hits = {.g = g, .option = "--eta", .wish = wish};
		for (int slot; (slot = next_hit(&hits)) >= 0;) {
			want_length(&g->slots.at[slot], wish);
			if (!agrees(&eta[slot], wish, x))
				give_eta(arena, wish, x, &eta[slot]);
		}
	}
}

// ---- the shape of v and b -------------------------------------------------------------

// '1,768', with brackets around it or not. False: not numbers, or they do not fit.
static bool read_numbers(const char *text, const Shape *whole, Shape *slot)
{
	slot->rank = 0;
	text += strspn(text, "([ ");
	for (char *end; *text && !strchr(")]", *text); text = end + strspn(end, ", ")) {
		long long n = strtoll(text, &end, 10);
		if (end == text || slot->rank == whole->rank ||
		    (n != 1 && n != whole->dim[slot->rank]))
			return false;
		slot->dim[slot->rank++] = n;
	}
	return slot->rank == whole->rank && !text[strspn(text, ")] ")];
}

static Shape given_slot(const char *name, const Shape *whole, const char *text)
{
	Shape slot = *whole;
	bool rows = !strcmp(text, "rows");
	if (!strcmp(text, "full"))
		return slot;
	if (!rows && strcmp(text, "scalar")) {
		if (!read_numbers(text, whole, &slot))
			fail(name,
			     "--slots '%s': wanted full, rows, scalar, or the parameter's shape "
			     "with "
			     "1 for each axis that is averaged over",
			     text);
		return slot;
	}
	return usual_slot(whole, rows);
}

void apply_slots(Arena *arena, const Graph *g, Eta *eta, const Overrides *list)
{
	for (int k = 0; k < list->count; k++) {
		Hits hits = {.g = g, .option = "--slots", .wish = &list->at[k]};
		for (int i; (i = next_hit(&hits)) >= 0;) {
			const Slot *slot = &g->slots.at[i];
			Shape given = given_slot(slot->name, &slot->shape, list->at[k].expr);
			if (same_shape(&given, &eta[i].slot))
				continue;
			eta[i].slot = given;
			const char **why = NEWS(arena, const char *, eta[i].nwhy + 1);
			memcpy(why, eta[i].why, sizeof *why * (size_t)eta[i].nwhy);
			why[eta[i].nwhy++] =
			    list->at[k].report ? "slots given by --eta" : "slots given by --slots";
			eta[i].why = why;
		}
	}
}

// ---- ranges of inputs -----------------------------------------------------------------

// A decimal is exact where it is short: 0.5, and not 0.707.
static Surd range_of(const char *expression, double x)
{
	enum { LONG = 1 << 8 };
	Surd exact = surd_near(x);
	bool decimal = !expression[strspn(expression, "0123456789.eE+-")];
	return decimal && (exact.num > LONG || exact.den > LONG) ? surd_number(x) : exact;
}

Surd *declared_ranges(Arena *arena, const Graph *g, const Overrides *list)
{
	Surd *range = NEWS(arena, Surd, g->slots.count + 1);
	for (int k = 0; k < list->count; k++) {
		const Override *wish = &list->at[k];
		int slot = find_slot(g, wish->pattern);
		if (slot < 0 || g->slots.at[slot].kind != S_input)
			fail(wish->pattern, "--range: the model has no such input; %s",
			     suggest_slot(g, S_input, wish->pattern));
		if (!is_float(g->slots.at[slot].type))
			fail(wish->pattern, "--range: its values are indices, which have no range");
		double x = book_number(arena, wish->pattern, wish->expr);
		if (!(x > 0) || !isfinite(x))
			fail(wish->pattern, "--range '%s' is not a positive number", wish->expr);
		range[slot] = range_of(wish->expr, x);
	}
	return range;
}

// override.c: applies --eta, --range and --slots.
// Input: what the user gave, and what is inferred. Output: Etas with the user's values, which are
// also the reason. Invariant: the last of several options wins; one that matches nothing is an
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

// Returns where a message says that the value stands: the row of a report, or the option.
static const char *place_of(Arena *arena, const char *option, const Override *o)
{
	return format(arena, o->report ? "%s: %s" : "%s %s", o->report ? o->report : option,
	              o->pattern);
}

typedef VEC(int) Slots;

// Returns the parameters that a pattern matches; fails if there are none.
static Slots matched(Arena *arena, const Graph *g, const char *option, const Override *override)
{
	Slots slots = {0};
	int exact = override->report ? find_slot(g, override->pattern) : -1;
	if (exact >= 0 && g->slots.at[exact].kind == S_param)
		PUSH(arena, slots, exact);
	for (int i = 0; i < g->slots.count && !override->report; i++)
		if (g->slots.at[i].kind == S_param &&
		    matches(override->pattern, g->slots.at[i].name))
			PUSH(arena, slots, i);
	if (!slots.count)
		fail(place_of(arena, option, override), "matches no parameter; %s",
		     suggest_slot(g, S_param, override->pattern));
	return slots;
}

// ---- eta ------------------------------------------------------------------------------

static bool is_scale(double x) // steps compute in f32
{
	return (float)x > 0 && isfinite((float)x);
}

static double positive(Arena *arena, const Override *override, const char *expression, double x)
{
	if (!is_scale(x))
		fail(place_of(arena, "--eta", override),
		     "expected a positive number for eta, such as 'sqrt(1/768)', found '%s'",
		     expression);
	return x;
}

static bool close_to(Surd eta, double x)
{
	return fabs(eta.value - x) <= 1e-8 * x;
}

// True if a row of a report equals what is inferred.
static bool agrees(const Eta *eta, const Override *override, double x)
{
	bool answered = override->sure && !eta->sure;
	if (!override->report || answered || (override->count > 0) != (eta->nparts > 0))
		return false;
	if (!override->count)
		return close_to(eta->eta, x);
	int64_t at = 0;
	for (int part = 0; part < eta->nparts; part++)
		for (int64_t i = 0; i < eta->counts[part]; i++, at++)
			if (at >= override->count ||
			    !close_to(eta->parts[part].eta, override->along[at]))
				return false;
	return at == override->count && eta->axis == override->axis;
}

// Turns runs of equal values into slices.
static void assign_slices(Arena *arena, const Override *override, Eta *eta)
{
	Text formula = {.arena = arena};
	Eta *parts = NEWS(arena, Eta, override->count);
	int64_t *counts = NEWS(arena, int64_t, override->count);
	int n = 0;
	for (int64_t i = 0; i < override->count; i++) {
		double x = positive(arena, override, "0", override->along[i]);
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
	eta->axis = override->axis;
	eta->nparts = n > 1 ? n : 0;
	eta->counts = counts;
	eta->parts = parts;
}

static void assign_eta(Arena *arena, const Override *override, double x, Eta *eta)
{
	static const char *const why[] = {"given by --eta"};
	eta->sure = true;
	eta->question = NULL;
	eta->nparts = 0;
	eta->source = eta->demand_by = NULL;
	eta->why = (const char **)take_copy(arena, why, sizeof why);
	eta->nwhy = COUNT(why);
	if (override->count) {
		assign_slices(arena, override, eta);
		return;
	}
	eta->eta = surd_near(x);
	eta->formula = override->report ? surd_text(arena, eta->eta, 0) : override->expr;
}

void apply_etas(Arena *arena, const Graph *g, Eta *eta, const Overrides *list)
{
	for (int k = 0; k < list->count; k++) {
		const Override *override = &list->at[k];
		const char *where = place_of(arena, "--eta", override), *expr = override->expr;
		double x = override->count
		               ? 0
		               : positive(arena, override, expr, book_number(arena, where, expr));
		Slots slots = matched(arena, g, "--eta", override);
		for (int n = 0; n < slots.count; n++) {
			int i = slots.at[n];
			const Slot *slot = &g->slots.at[i];
			if (override->count && (override->axis >= slot->shape.rank ||
			                        slot->shape.dim[override->axis] != override->count))
				fail(where, "%lld values along axis %d do not broadcast to '%s'",
				     (long long) override->count, override->axis, slot->name);
			if (!agrees(&eta[i], override, x))
				assign_eta(arena, override, x, &eta[i]);
		}
	}
}

// ---- the shape of v and b -------------------------------------------------------------

// Reads full, rows, scalar, or '1,768' with or without brackets.
static Shape parse_slot(const char *where, const Slot *of, const char *text)
{
	const Shape *full = &of->shape;
	if (!strcmp(text, "full"))
		return *full;
	if (!strcmp(text, "rows") || !strcmp(text, "scalar"))
		return default_slot(full, *text == 'r');
	Shape slot = {0};
	bool fits = true;
	const char *at = text + strspn(text, "([ ");
	for (char *end; *at && !strchr(")]", *at) && fits; at = end + strspn(end, ", ")) {
		long long n = strtoll(at, &end, 10);
		fits = end != at && slot.rank < full->rank && (n == 1 || n == full->dim[slot.rank]);
		if (fits)
			slot.dim[slot.rank++] = n;
	}
	if (!fits || slot.rank != full->rank || at[strspn(at, ")] ")])
		fail(where,
		     "expected full, rows, scalar, or the shape of '%s' with 1 for each axis that "
		     "is averaged, found '%s'",
		     of->name, text);
	return slot;
}

void apply_slots(Arena *arena, const Graph *g, Eta *eta, const Overrides *list)
{
	for (int k = 0; k < list->count; k++) {
		const char *where = place_of(arena, "--slots", &list->at[k]);
		Slots slots = matched(arena, g, "--slots", &list->at[k]);
		for (int n = 0; n < slots.count; n++) {
			int i = slots.at[n];
			const Slot *slot = &g->slots.at[i];
			Shape shape = parse_slot(where, slot, list->at[k].expr);
			if (same_shape(&shape, &eta[i].slot))
				continue;
			eta[i].slot = shape;
			const char **why = NEWS(arena, const char *, eta[i].nwhy + 1);
			memcpy(why, eta[i].why, sizeof *why * (size_t)eta[i].nwhy);
			why[eta[i].nwhy++] =
			    list->at[k].report ? "slots given by --eta" : "slots given by --slots";
			eta[i].why = why;
		}
	}
}

// ---- ranges of inputs -----------------------------------------------------------------

Surd *declared_ranges(Arena *arena, const Graph *g, const Overrides *list)
{
	enum { LONG = 1 << 8 };
	Surd *range = NEWS(arena, Surd, g->slots.count + 1);
	for (int k = 0; k < list->count; k++) {
		const Override *override = &list->at[k];
		const char *where = place_of(arena, "--range", override);
		int slot = find_slot(g, override->pattern);
		if (slot < 0 || g->slots.at[slot].kind != S_input)
			fail(where, "the model has no input of this name; %s",
			     suggest_slot(g, S_input, override->pattern));
		if (!is_float(g->slots.at[slot].type))
			fail(where, "its values are indices, which have no range");
		double x = book_number(arena, where, override->expr);
		if (!is_scale(x))
			fail(where, "expected a positive number, found '%s'", override->expr);
		// A short decimal is exact: 0.5, but not 0.707.
		Surd exact = surd_near(x);
		bool decimal = !override->expr[strspn(override->expr, "0123456789.eE+-")];
		bool rounded = decimal && (exact.num > LONG || exact.den > LONG);
		range[slot] = rounded ? surd_number(x) : exact;
	}
	return range;
}

// generate.c: implements amosc run --generate: continues a text with a language model over bytes.
// Input: a model with one input of tokens [1, n] and an output of scores [1, n, tokens]. It must be
// causal: positions after the last token hold zeros.
#include "tool.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

typedef struct Writer {
	struct amos *open;
	const struct amos_entry *entry;
	const Slot *input;
	int64_t window, tokens; // positions of the input; scores per position
	char *ids;              // the input's memory
	const void *scores;
	Elem type; // of scores
	int64_t seed;
	double heat;
} Writer;

static double score(const Writer *w, int64_t position, int64_t token)
{
	return amos_number(w->scores, w->type, position * w->tokens + token);
}

// Returns a token that continues `text`, sampled from softmax(scores / heat); `number` counts the
// samples. The last tokens of `text` fill the window from its start.
static int64_t next_token(const Writer *w, const char *text, int64_t count, int64_t number)
{
	int64_t used = MIN(count, w->window);
	memset(w->ids, 0, (size_t)(w->window * elems[w->input->type].bytes));
	for (int64_t i = 0; i < used; i++) {
		unsigned char token = (unsigned char)text[count - used + i];
		if (w->input->type == E_i64)
			((int64_t *)w->ids)[i] = token;
		else
			((int32_t *)w->ids)[i] = token;
	}
	need_done(amos_call(w->open, w->entry, NULL, NULL));
	double top = -INFINITY, sum = 0;
	for (int64_t i = 0; i < w->tokens; i++)
		top = fmax(top, score(w, used - 1, i));
	for (int64_t i = 0; i < w->tokens; i++)
		sum += exp((score(w, used - 1, i) - top) / w->heat);
	double left = random_uniform((uint64_t)w->seed, 0, 0, (uint64_t)number) * sum;
	for (int64_t i = 0; i < w->tokens; i++) {
		left -= exp((score(w, used - 1, i) - top) / w->heat);
		if (left < 0)
			return i;
	}
	return w->tokens - 1;
}

static Writer writer_of(Session *session, Graph *g, const char *path)
{
	const Slot *input = NULL;
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == S_input)
			input = input ? NULL : &g->slots.at[i];
	const Val *out = g->outs.count ? val(g, g->outs.at[0].val) : NULL;
	bool fits = input && (input->type == E_i64 || input->type == E_i32) &&
	            input->shape.rank == 2 && out && is_float(out->type) && out->shape.rank == 3 &&
	            input->shape.dim[0] == 1 && out->shape.dim[1] == input->shape.dim[1];
	if (!fits)
		fail(path, "--generate: expected one input, of tokens [1,n], and a first output "
		           "of scores [1,n,tokens]");
	struct amos *open = open_program(program_of(session, g, "run"));
	const struct amos_entry *entry = &open->model->entries[0];
	return (Writer){.open = open,
	                .entry = entry,
	                .input = input,
	                .window = input->shape.dim[1],
	                .tokens = out->shape.dim[2],
	                .ids = amos_slot_bytes(open, find_slot(g, input->name)),
	                .scores = amos_out_bytes(open, entry, 0),
	                .type = out->type,
	                .seed = choice_count(session, OPT_seed, 0),
	                .heat = choice_number(session, OPT_temperature, 0.8)};
}

// Returns the byte; fails unless it is a token of the model.
static char token_of(const Writer *w, char byte)
{
	const Slot *to = w->input;
	if (to->limit && (unsigned char)byte >= to->limit)
		fail("--generate", "byte %d is not a token; input '%s' takes 0 to %lld",
		     (unsigned char)byte, to->name, (long long)to->limit - 1);
	return byte;
}

// Prints the bytes; to a terminal, as printable characters. Returns the number of bytes consumed.
static size_t show_text(const char *text, size_t count, bool last)
{
	if (isatty(STDOUT_FILENO))
		return amos_print_text(stdout, text, count, last);
	return fwrite(text, 1, count, stdout);
}

void generate(Session *session)
{
	Graph *g = read_window(session, 64)->graph;
	Writer w = writer_of(session, g, session->path);
	const char *prompt = choice(session, OPT_prompt, "\n");
	int64_t more = choice_count(session, OPT_generate, 0);
	if (!*prompt || w.heat <= 0)
		bad_usage(session,
		          "expected a --prompt that is not empty and a --temperature above 0");
	VEC(char) text = {0};
	for (const char *c = prompt; *c; c++)
		PUSH(session->arena, text, token_of(&w, *c));
	bool live = !chosen(session, OPT_json); // prints each byte as soon as it is drawn
	size_t shown = live ? show_text(text.at, (size_t)text.count, !more) : 0;
	for (int64_t i = 0; i < more && !ferror(stdout); i++) {
		char next = token_of(&w, (char)next_token(&w, text.at, text.count, i));
		PUSH(session->arena, text, next);
		if (!live)
			continue;
		shown += show_text(text.at + shown, (size_t)text.count - shown, i + 1 == more);
		fflush(stdout);
	}
	if (live) {
		putchar('\n');
		return;
	}
	json_t *tokens = json_array();
	for (int i = 0; i < text.count; i++)
		json_array_append_new(tokens, json_integer((unsigned char)text.at[i]));
	const char *all = format(session->arena, "%.*s", text.count, text.at);
	print_json(json_pack("{so so}", "text", json_text(all), "tokens", tokens));
}

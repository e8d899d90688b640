// eta_pairs.c: checks that two exporters of the same network give the same roles and ranges.
// Reads pairs of files under $AMOSC_MODELS: one in the directory itself (PyTorch 1.13, hidden size
// m = 2d), one in dynamo/, which test_eta_models compares with scales derived by hand. Parameters
// of equal name must agree, also in certainty; where an exporter changed a value, which the reader
// asks about, only in role and range. Exit status 1 if two disagree.
#include "onnx.h"
#include "passes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *older, *newer;
} pairs[] = {
    {"bert_mlm_op13_train", "bert_op20_train"},
    {"bert_mlm_op13_eval", "bert_op20_eval"},
    {"bert_mlm_hf12_op13_train", "bert_ts_op17_train_rnd"},
    {"gpt2_op13_train", "gpt2_ts_op17_train_rnd"},
    {"gpt2_hf12_op13_train", "gpt2_op20_eval"},
    {"llama_gqa_op14_train", "llama_dyn_op20_train_rnd"},
    {"llama_gqa_op14_eval", "llama_ts_op17_eval"},
    {"t5_gated_op13_train", "t5_gated_ts_op17_train_rnd"},
    {"t5_gated_op13_eval", "t5_gated_eager_op20_eval"},
    {"vit_tiny_op13_train", "vit_tv_dyn_op20_train_rnd"},
    {"vit_tiny_op11_eval", "vit_tv_op20_eval"},
    {"swin_tiny_sd0_static_op13_train", "swin_op20_train_noopt_rnd"},
    {"swin_tiny_op13_eval", "swin_op20_eval"},
    {"resnet18_op13_train", "resnet18_op18_train_noopt_rnd"},
    {"resnet18_op13_eval", "resnet18_op20_eval"},
    {"resnet50_op13_train", "resnet50_dyn_op20_train_rnd"},
    {"mobilenet_v3_small_op15_train", "mobilenet_v3_ts_op17_train_rnd"},
    {"roformer_mlm_op13_train", "roformer_dyn_op20_train_rnd"},
    {"whisper_op14_train", "whisper_dyn_op20_train_rnd"},
    {"convnext_tiny_sd0_op13_train", "convnext_op18_train_noopt"},
    {"convnext_tiny_op13_eval", "convnext_op20_eval"},
    {"unet_gn_op13_train", "unet_gn_dyn_op21_train_rnd"},
    {"lstm_lm_op13_train", "lstm_lm_ts_op17_train_rnd"},
    {"gru_lm_op13_train", "gru_lm_ts_op17_train_rnd"},
    {"encoder_causal_tied_op13_train", "nn_encoder_tied_op20_train_rnd"},
};

typedef struct Side {
	const Graph *g;
	const Eta *eta;
} Side;

static Side read_side(Arena *arena, const char *path)
{
	VEC(Bind) bind = {0};
	Model *listed = read_model(arena, path, &(ReadOptions){.list = true});
	for (int i = 0; i < listed->inputs.count; i++)
		for (int a = 0; a < listed->inputs.at[i].rank; a++) {
			const Dim *dim = &listed->inputs.at[i].dim[a];
			const char *own = format(arena, "%s:%d", listed->inputs.at[i].name, a);
			if (dim->size < 0)
				PUSH(arena, bind,
				     ((Bind){*dim->name ? dim->name : own, a ? 8 : 2}));
		}
	ReadOptions options = {.nbind = bind.count, .bind = bind.at};
	Side side = {.g = read_model(arena, path, &options)->graph};
	side.eta = eta_pass(arena, side.g, &(EtaOptions){0}, NULL);
	return side;
}

static bool agree(const Eta *a, const Eta *b, bool asked)
{
	return !strcmp(a->role, b->role) && (asked || a->sure == b->sure) &&
	       a->nparts == b->nparts &&
	       fabs(a->range.value - b->range.value) <= 1e-6 * b->range.value;
}

static void compare(Arena *arena, const char *models, int pair, int *same, int *different)
{
	Side a = read_side(arena, format(arena, "%s/%s.onnx", models, pairs[pair].older));
	Side b = read_side(arena, format(arena, "%s/dynamo/%s.onnx", models, pairs[pair].newer));
	for (int i = 0; i < a.g->slots.count; i++) {
		const char *name = a.g->slots.at[i].name;
		int other = a.g->slots.at[i].kind == S_param ? find_slot(b.g, name) : -1;
		if (other < 0 || b.g->slots.at[other].kind != S_param)
			continue;
		const Eta *x = &a.eta[i], *y = &b.eta[other];
		bool asked = a.g->slots.at[i].why || b.g->slots.at[other].why;
		*same += agree(x, y, asked);
		if (agree(x, y, asked))
			continue;
		++*different;
		printf("%s: %s is %s %s of range %g, in %s %s %s of range %g\n", pairs[pair].older,
		       name, x->role, x->formula, x->range.value, pairs[pair].newer, y->role,
		       y->formula, y->range.value);
	}
}

int main(void)
{
	const char *models = getenv("AMOSC_MODELS");
	int same = 0, different = 0;
	if (!models)
		fail("eta_pairs", "AMOSC_MODELS names no folder of models");
	for (int i = 0; i < COUNT(pairs); i++) {
		Arena *arena = arena_new();
		compare(arena, models, i, &same, &different);
		arena_free(arena);
	}
	printf("eta_pairs: %d parameters agree, %d do not\n", same, different);
	return different || !same;
}

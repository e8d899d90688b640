// outputs.c: opens two models in one program, each in threads of its own, and trains both.
// Prints the loss of each after five steps; the threads must agree.
#include "amos.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern const struct amos_model first_model, second_model;

enum { STEPS = 5, THREADS = 4 };

static void fill(struct amos *m)
{
	for (int64_t i = 0; i < m->model->nslots; i++) {
		const struct amos_slot *s = &m->model->slots[i];
		if (s->kind != AMOS_SLOT_INPUT)
			continue;
		if (!strcmp(s->name, "labels"))
			for (int64_t k = 0; k < s->bytes / 8; k++)
				((int64_t *)amos_slot_bytes(m, i))[k] = k % 3;
		else
			for (int64_t k = 0; k < s->bytes / 4; k++)
				((float *)amos_slot_bytes(m, i))[k] = sinf(0.7f * (float)k);
	}
}

static void *train(void *model)
{
	struct amos *m;
	double *loss = malloc(sizeof *loss);
	if (!loss || amos_open(model, 1, 0, NULL, NULL, &m))
		return NULL;
	const struct amos_entry *entry = amos_find_entry(model, "train");
	fill(m);
	for (int i = 0; i < STEPS; i++)
		if (amos_call(m, entry, NULL, NULL))
			return NULL;
	*loss = amos_out_number(m, entry, amos_find_output(entry, "loss"));
	amos_close(m);
	return loss;
}

int main(void)
{
	const struct amos_model *models[] = {&first_model, &second_model};
	for (int k = 0; k < 2; k++) {
		pthread_t thread[THREADS];
		void *loss[THREADS];
		for (int i = 0; i < THREADS; i++)
			if (pthread_create(&thread[i], NULL, train, (void *)models[k]))
				return 1;
		for (int i = 0; i < THREADS; i++)
			pthread_join(thread[i], &loss[i]);
		for (int i = 0; i < THREADS; i++)
			if (!loss[i] || memcmp(loss[i], loss[0], sizeof(double)))
				return 1;
		printf("%.9g\n", *(double *)loss[0]);
		for (int i = 0; i < THREADS; i++)
			free(loss[i]);
	}
	return 0;
}

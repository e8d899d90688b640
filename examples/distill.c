/* distill.c: two models in one program: a teacher learns labels, then a student learns the
 * teacher's scores. The teacher is compiled with a cross entropy, the student with a mean squared
 * error.
 */
#include "net.h"
#include "student.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(status)                                                                               \
	do {                                                                                       \
		if (status) {                                                                      \
			fprintf(stderr, "%s: %s\n", #status, amos_error());                        \
			exit(EXIT_FAILURE);                                                        \
		}                                                                                  \
	} while (0)

static void draw(struct amos *m, int64_t input, int64_t batch)
{
	float *x = amos_values(m, AMOS_INPUTS, input);
	for (int64_t i = 0; i < amos_bytes(m, AMOS_INPUTS, input) / 4; i++)
		x[i] = sinf(0.7f * (float)(i + 13 * batch));
}

int main(void)
{
	struct amos *teacher, *student;
	double loss = 0, first = 0;
	NEED(amos_open(&net_model, NULL, &teacher));
	NEED(amos_open(&student_model, NULL, &student));
	int64_t *labels = amos_values(teacher, AMOS_INPUTS, net_input_labels);
	for (int64_t i = 0; i < amos_shape(teacher, AMOS_INPUTS, net_input_labels)[0]; i++)
		labels[i] = i % 3;
	for (int step = 0; step < 200; step++) {
		draw(teacher, net_input_x, step % 8);
		NEED(amos_step(teacher, NULL));
	}
	for (int step = 0; step < 1000; step++) {
		draw(teacher, net_input_x, step % 8);
		draw(student, student_input_x, step % 8);
		NEED(amos_forward(teacher));
		memcpy(amos_values(student, AMOS_INPUTS, student_input_scores),
		       amos_values(teacher, AMOS_OUTPUTS, net_output_logits),
		       (size_t)amos_bytes(teacher, AMOS_OUTPUTS, net_output_logits));
		NEED(amos_step(student, &loss));
		first = step ? first : loss;
	}
	printf("squared error %.4f at first, %.4f after 1000 steps\n", first, loss);
	amos_close(teacher);
	amos_close(student);
	return loss < 0.5 * first ? EXIT_SUCCESS : EXIT_FAILURE;
}

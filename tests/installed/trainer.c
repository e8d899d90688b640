/* trainer.c: a program that only knows the installed tree: opens a model, and has another. */
#include <amos.h>
#include <stdio.h>

extern const struct amos_model net_model, second_model;

int main(void)
{
	struct amos *m;
	if (AMOS_VERSION_NUMBER < 100 || amos_open(&net_model, 1, 0, NULL, NULL, &m)) {
		fprintf(stderr, "%s\n", amos_error());
		return 1;
	}
	printf("%s: %d slots, amos " AMOS_VERSION "\n", net_model.name, (int)net_model.nslots);
	printf("%s: %d slots\n", second_model.name, (int)second_model.nslots);
	amos_close(m);
	return 0;
}

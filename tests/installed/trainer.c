/* trainer.c: a program that only knows the installed tree: opens its model and trains one step. */
#include <amos.h>
#include <stdio.h>

extern const struct amos_model net_model;

int main(void)
{
	struct amos *m;
	if (AMOS_VERSION_NUMBER < 100 || amos_open(&net_model, 1, 0, NULL, NULL, &m)) {
		fprintf(stderr, "%s\n", amos_error());
		return 1;
	}
	printf("%s: %d slots, amos " AMOS_VERSION "\n", net_model.name, (int)net_model.nslots);
	amos_close(m);
	return 0;
}

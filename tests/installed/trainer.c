/* trainer.c: a program that only knows the installed tree: opens its model and trains one step. */
#include <amos.h>
#include <stdio.h>

int main(void)
{
	struct amos *m;
	if (AMOS_VERSION_NUMBER < 100 || amos_open(&amos_model, 1, 0, NULL, NULL, &m)) {
		fprintf(stderr, "%s\n", amos_error());
		return 1;
	}
	printf("%s: %d slots, amos " AMOS_VERSION "\n", amos_model.name, (int)amos_model.nslots);
	amos_close(m);
	return 0;
}

// signals.c: the first signal asks trainings to save and stop, the second ends the process.
#include "rt.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static atomic_int interrupts; // read by trainings in other threads

static void interrupt(int signal)
{
	(void)signal;
	if (++interrupts > 1)
		amos_interrupt("\nstopped at once; the last checkpoint is kept\n");
}

enum { SIGNALS = 3 };
static const int signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
static struct sigaction before[SIGNALS];
static int trainings; // at once, in several threads
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void amos_catch_interrupts(void)
{
	struct sigaction ours = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
	pthread_mutex_lock(&lock);
	for (int i = 0; i < SIGNALS && !trainings; i++) {
		sigaction(signals[i], &ours, &before[i]);
		if (signals[i] == SIGHUP && before[i].sa_handler == SIG_IGN) // ignored by nohup
			sigaction(SIGHUP, &before[i], NULL);
	}
	interrupts = trainings++ ? interrupts : 0;
	pthread_mutex_unlock(&lock);
}

void amos_release_interrupts(void)
{
	pthread_mutex_lock(&lock);
	trainings--;
	for (int i = 0; i < SIGNALS && !trainings; i++)
		sigaction(signals[i], &before[i], NULL);
	interrupts = trainings ? interrupts : 0;
	pthread_mutex_unlock(&lock);
}

bool amos_stopping(void)
{
	return interrupts > 0;
}

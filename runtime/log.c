// log.c: writes log.jsonl and TensorBoard events, and progress on the terminal.
// Invariant: a resumed log has each step once.
#include "rt.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static double peak_megabytes(void)
{
	struct rusage usage;
	return getrusage(RUSAGE_SELF, &usage) ? 0 : (double)usage.ru_maxrss / 1024;
}

struct amos_bytes_text amos_bytes_text(double bytes)
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	struct amos_bytes_text to;
	int i = 0;
	for (; bytes >= 1024 && i + 1 < COUNT(unit); i++)
		bytes /= 1024;
	snprintf(to.text, sizeof to.text, "%.*f %s", i > 0, bytes, unit[i]);
	return to;
}

// ---- log.jsonl and events -------------------------------------------------------------

FILE *amos_log_file(const char *path, bool resumed, int64_t step, int64_t next_step(FILE *))
{
	FILE *file = resumed ? amos_file_edit(path, "r+") : NULL;
	if (!file && (!resumed || errno == ENOENT))
		return amos_file_edit(path, "w");
	long keep = 0;
	for (int64_t at; file && (at = next_step(file)) >= 0 && at <= step;)
		keep = ftell(file);
	if (!file ||
	    (!ferror(file) && !fseek(file, keep, SEEK_SET) && !ftruncate(fileno(file), keep)))
		return file;
	fclose(file);
	return NULL;
}

static int64_t next_line(FILE *from)
{
	char line[4096];
	long long step;
	bool complete = fgets(line, sizeof line, from) && line[strlen(line) - 1] == '\n';
	return complete && sscanf(line, "{\"step\": %lld", &step) == 1 ? step : -1;
}

int amos_log_open(struct amos_log *log, const char *dir, int64_t step,
                  const struct amos_options *options)
{
	bool resumed = options->resume != NULL;
	*log = (struct amos_log){
	    .start = amos_now(), .quiet = options->quiet, .terminal = isatty(STDERR_FILENO)};
	log->progress = !log->quiet && (log->terminal || options->verbose);
	if (asprintf(&log->path, "%s/log.jsonl", dir) < 0) {
		log->path = NULL;
		return amos_no_memory(dir);
	}
	log->lines = amos_log_file(log->path, resumed, step, next_line);
	if (!log->lines)
		return amos_fail_errno("open", log->path);
	log->events = amos_events_open(dir, resumed, step);
	return log->events ? AMOS_DONE : amos_fail_errno("write events", dir);
}

// Otherwise done for the first line, twice per second, and so often that readers see complete
// lines.
static int flush_log(struct amos_log *log)
{
	if (log->pending)
		log->flushed = amos_now();
	log->pending = 0;
	if (!log->lines) // no run directory
		return AMOS_DONE;
	if (fflush(log->lines) || fflush(log->events) || ferror(log->lines) || ferror(log->events))
		return amos_fail_errno("write", log->path);
	return AMOS_DONE;
}

int amos_log_sync(struct amos_log *log)
{
	int status = flush_log(log);
	if (!status && log->lines && (fsync(fileno(log->lines)) || fsync(fileno(log->events))))
		status = amos_fail_errno("write", log->path);
	return status;
}

int amos_log_close(struct amos_log *log, int status)
{
	// An earlier failure is reported, not one that follows from it.
	if (!status && log->events)
		status = flush_log(log);
	if (log->shown)
		fputs("\n", stderr);
	if (log->lines)
		fclose(log->lines);
	if (log->events)
		fclose(log->events);
	free(log->path);
	*log = (struct amos_log){0};
	return status;
}

int amos_log_line(struct amos_log *log, int64_t step, int n, const struct amos_figure *figures)
{
	enum { LINES = 16 }; // of at most 256 bytes in the stream's buffer of 4096
	if (!log->lines)
		return AMOS_DONE;
	fprintf(log->lines, "{\"step\": %lld", (long long)step);
	for (int i = 0; i < n; i++) {
		if (!isfinite(figures[i].value))
			continue;
		fprintf(log->lines, ", \"%s\": %.9g", figures[i].name, figures[i].value);
		amos_event(log->events, figures[i].name, step, figures[i].value);
	}
	fprintf(log->lines, ", \"seconds\": %.3f, \"memory_mb\": %.0f}\n", amos_now() - log->start,
	        peak_megabytes());
	bool full = ++log->pending == LINES;
	return full || amos_now() - log->flushed > 0.5 ? flush_log(log) : AMOS_DONE;
}

// ---- progress -------------------------------------------------------------------------

void amos_progress(struct amos_log *log, int64_t step, int64_t steps, double loss, double rate,
                   const char *unit, double left, bool last)
{
	double now = amos_now(), wait = log->terminal ? 0.1 : 10;
	if (!log->progress || (!last && log->reported && now - log->reported < wait))
		return;
	char clock[32];
	long long s = left < 0 ? 0 : (long long)(left + 0.5);
	if (s >= 3600)
		snprintf(clock, sizeof clock, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
	else
		snprintf(clock, sizeof clock, "%lld:%02lld", s / 60, s % 60);
	fprintf(stderr, "%sstep %lld/%lld  loss %.4f  %.*f %s/s  %s left  %.0f MB%s",
	        log->terminal ? "\r\033[K" : "", (long long)step, (long long)steps, loss,
	        rate < 100 ? 1 : 0, rate, unit, clock, peak_megabytes(), log->terminal ? "" : "\n");
	log->reported = now;
	log->shown = log->terminal;
}

void amos_say(struct amos_log *log, const char *fmt, ...)
{
	if (log->quiet)
		return;
	va_list args;
	va_start(args, fmt);
	if (log->shown)
		fputs("\r\033[K", stderr);
	log->shown = false;
	amos_print_args(stderr, fmt, args);
	va_end(args);
}

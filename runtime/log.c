// log.c: writes log.jsonl, TensorBoard events and command.json, and progress on the terminal.
// Invariant: a resumed log has each step once.
#include "rt.h"
#include <errno.h>
#include <jansson.h>
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

// Otherwise done twice per second, and so often that readers see complete lines.
static int flush_log(struct amos_log *log)
{
	log->flushed = amos_now();
	log->pending = 0;
	if (fflush(log->lines) || fflush(log->events) || ferror(log->lines) || ferror(log->events))
		return amos_fail_errno("write", log->path);
	return AMOS_DONE;
}

int amos_log_sync(struct amos_log *log)
{
	int status = flush_log(log);
	if (!status && (fsync(fileno(log->lines)) || fsync(fileno(log->events))))
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

// ---- command.json ---------------------------------------------------------------------

static int write_command(const char *dir, const json_t *all)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/command.json", dir);
	if (!all)
		return errno == ENOMEM
		           ? amos_no_memory(path)
		           : amos_fail(AMOS_INPUT,
		                       "%s: the command is not valid UTF-8" HELP "rename the files",
		                       path);
	struct amos_temp_file file;
	int status = amos_file_begin(&file, path, AMOS_OWN);
	if (status)
		return status;
	// Not json_dumps(), which leaves out keys if memory runs out.
	if (json_dumpf(all, file.to, JSON_INDENT(2)) && !ferror(file.to)) {
		amos_file_drop(&file);
		return amos_no_memory(path);
	}
	fputc('\n', file.to);
	return amos_file_keep(&file);
}

// Returns a word as JSON, with bytes that JSON cannot hold escaped so that amos_restore() recovers
// them.
static json_t *word_json(const char *word)
{
	char *text = amos_escaped(word, true);
	json_t *json = text ? json_string(text) : NULL;
	free(text);
	return json;
}

int amos_command_keep(const char *dir, const struct amos_model *model,
                      const struct amos_options *options)
{
	char cwd[4096] = "";
	if (!getcwd(cwd, sizeof cwd))
		cwd[0] = 0;
	bool complete = true;
	errno = 0;
	json_t *argv = json_array();
	for (int i = 0; i < options->argc; i++)
		complete &= !json_array_append_new(argv, word_json(options->argv[i]));
	json_t *all =
	    json_pack("{s:o, s:o, s:s, s:s, s:s}", "command", argv, "folder", word_json(cwd),
	              "model", model->name ? model->name : "", "target",
	              model->target ? model->target : "", "chosen", model->note ? model->note : "");
	int status = write_command(dir, complete ? all : NULL);
	json_decref(all);
	return status;
}

// Sets *all to NULL if the file is missing or corrupt. Fails on a system error.
static int read_command(const char *dir, json_t **all)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/command.json", dir);
	*all = NULL;
	FILE *file = fopen(path, "r");
	if (!file)
		return amos_errno_status() == AMOS_MACHINE ? amos_fail_errno("read", path)
		                                           : AMOS_DONE;
	errno = 0; // jansson does not report every lack of memory itself
	*all = json_loadf(file, 0, NULL);
	bool memory = !*all && errno == ENOMEM;
	int status = ferror(file) ? amos_fail_errno("read", path)
	             : memory     ? amos_no_memory(path)
	                          : AMOS_DONE;
	fclose(file);
	return status;
}

int amos_command_found(const char *dir, bool *found)
{
	json_t *all;
	int status = read_command(dir, &all);
	*found = json_is_array(json_object_get(all, "command"));
	json_decref(all);
	return status;
}

int amos_command_wrote(const char *dir, const char *path, bool *wrote)
{
	json_t *all, *name = word_json(basename(path));
	int status = read_command(dir, &all);
	*wrote = name && json_equal(json_object_get(all, "trained"), name);
	json_decref(name);
	json_decref(all);
	return status;
}

int amos_command_writes(const char *dir, const char *path)
{
	json_t *all;
	int status = read_command(dir, &all);
	bool set = !json_object_set_new(all, "trained", word_json(basename(path)));
	if (!status)
		status = set ? write_command(dir, all)
		             : amos_fail(AMOS_INPUT, "%s/command.json: missing or corrupt", dir);
	json_decref(all);
	return status;
}

int amos_command(const char *dir, int *argc, char ***argv)
{
	json_t *all;
	int status = read_command(dir, &all);
	if (status)
		return status;
	json_t *command = json_object_get(all, "command");
	size_t n = json_array_size(command), bytes = 0;
	for (size_t i = 0; i < n; i++)
		bytes += json_string_length(json_array_get(command, i)) + 1;
	*argc = (int)n;
	*argv = n ? malloc((n + 1) * sizeof(char *) + bytes) : NULL;
	char *at = *argv ? (char *)(*argv + n + 1) : NULL;
	for (size_t i = 0; at && i < n; i++) {
		const char *word = json_string_value(json_array_get(command, i));
		(*argv)[i] = at;
		stpcpy(at, word ? word : "");
		amos_restore(at);
		at += strlen(at) + 1;
	}
	if (*argv)
		(*argv)[n] = NULL;
	json_decref(all);
	if (n && !*argv)
		return amos_no_memory(dir);
	return *argv ? AMOS_DONE
	             : amos_fail(AMOS_INPUT, "%s: no run to resume: %s", dir,
	                         all ? "command.json has no command"
	                             : "command.json is missing or corrupt");
}

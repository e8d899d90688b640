// trainer.c: checks a compiled trainer as a command: verbs, options, exit status, --resume.
// The program is argument 1; its model is written by hand.
#include "fixtures.h"
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *program;

// Runs it with `words`; returns the exit status. Output goes to out.txt and err.txt.
static int run(const char *words)
{
	char line[1024];
	snprintf(line, sizeof line, "%s %s >out.txt 2>err.txt", program, words);
	int status = system(line);
	CHECK(WIFEXITED(status), "%s: ended by a signal", words);
	return WEXITSTATUS(status);
}

static void expect(int status, const char *words, const char *file, const char *text)
{
	int found = run(words);
	const char *all = read_file(arena, file, NULL);
	CHECK(found == status, "%s: status %d, wanted %d", words, found, status);
	CHECK(strstr(all, text), "%s: '%s' is not in %s:\n%s", words, text, file, all);
}

// run() redirects the output itself, so these redirections need an inner shell.
static void full_output(void)
{
	char full[600];
	snprintf(full, sizeof full, "info >/dev/null; %s info >/dev/full 2>full.txt; test $? = 3",
	         program);
	expect(0, full, "full.txt", "standard output: cannot write: No space left");
}

static void full_disk(void)
{
#ifdef __SANITIZE_THREAD__
	puts("trainer: no full disk: with ThreadSanitizer a program writes a file as it starts");
#else
	char limited[600];
	snprintf(limited, sizeof limited,
	         "info >/dev/null; (ulimit -f 0; %s run parts --data x=ones -o big.npz 2>&1; echo "
	         "$?) | cat >limited.txt; tail -n 1 limited.txt",
	         program);
	expect(0, limited, "limited.txt", "big.npz: cannot write");
	expect(0, limited, "out.txt", "3\n");
	CHECK(access("big.npz", F_OK), "a full disk leaves a file");
#endif
}

#define DATA "--data x=x.npy --data y=y.npy --split 0.8 --seed 2 "

int main(int argc, char **argv)
{
	CHECK(argc == 2, "usage: trainer PROGRAM");
	program = argv[1];
	enter_folder();
	write_line_data(100);
	expect(0, "--help", "out.txt", "export");
	expect(0, "train --help", "out.txt", "--eval-every=N");
	expect(0, "info", "out.txt", "parameter w f32[3]");
	expect(2, "--stepz 3", "err.txt", "--stepz");
	expect(2, "--steps ten", "err.txt", "--steps: expected an integer >= 0, found 'ten'");
	expect(2, "export", "err.txt", "expected an argument: CHECKPOINT");
	expect(1, "", "err.txt", "no data");
	expect(1, "--data x=nothing.npy", "err.txt", "nothing.npy: cannot read: No such file");
	expect(0, DATA "-n 40 -o whole --eval-every 20", "out.txt", "eval_loss");
	expect(1, DATA "-n 40 -o whole", "err.txt", "whole: the directory contains a run");
	expect(1, DATA "-n 40 -o x.npy", "err.txt", "x.npy: not a run directory");
	expect(0, "train " DATA "-n 40 -o whole --eval-every 20 --overwrite", "err.txt",
	       "memory: ");
	expect(0, DATA "-n 15 -o parts --eval-every 20 -q", "err.txt", "");
	expect(0, "--resume parts --steps 40 --json", "out.txt", "{\"step\": 40, \"loss\": ");
	hold_same("whole/last.ckpt", "parts/last.ckpt");
	expect(0, "--resume whole", "err.txt", "finished at step 40");
	expect(1, "--resume parts --seed 3", "err.txt",
	       "--seed differs from the run's; expected 2, found 3");
	expect(2, "--resume parts --overwrite", "err.txt",
	       "--resume continues in the run's directory");
	expect(0, DATA "-n 1 -q", "err.txt", "");
	expect(0, "eval mock_trainer.run " DATA, "out.txt", "step 1\n");
	expect(1, "--resume nowhere", "err.txt", "nowhere: no run to resume");
	expect(0, "eval parts " DATA, "out.txt", "eval_loss 0.");
	expect(0, "eval parts/best.ckpt --json " DATA, "out.txt", "{\"step\": 40");
	expect(1, "eval x.npy " DATA, "err.txt", "x.npy: not a checkpoint");
	expect(2, "export parts -o params.npz --keep first", "err.txt", "expected best or last");
	expect(2, "eval parts/best.ckpt --keep last " DATA, "err.txt", "with a checkpoint file");
	expect(2, "eval --keep last " DATA, "err.txt", "with the trainer's own weights");
	expect(0, "export parts -o params.npz --keep last", "out.txt", "");
	expect(2, "export parts -o trained.onnx", "err.txt", "compiled without the model's file");
	int64_t n;
	struct amos_array *arrays;
	CHECK(!amos_npz_read("params.npz", &n, &arrays) && n == 2, "%d parameters", (int)n);
	CHECK(!strcmp(arrays[0].name, "w") && amos_number(arrays[0].bytes, E_f32, 0) > 0.6,
	      "w was not trained");
	amos_npz_free(n, arrays);
	write_line_data(4);
	expect(0, "run parts --data x=x.npy -o out.npz", "out.txt", "");
	CHECK(!amos_npz_read("out.npz", &n, &arrays) && n == 1 && arrays[0].dim[0] == 4, "outputs");
	CHECK(!strcmp(arrays[0].name, "y_hat"), "%s", arrays[0].name);
	amos_npz_free(n, arrays);
	write_line_data(5);
	expect(0, "run parts --data x=x.npy -o out5.npz", "out.txt", "");
	CHECK(!amos_npz_read("out5.npz", &n, &arrays) && arrays[0].dim[0] == 5, "five samples");
	amos_npz_free(n, arrays);
	static const float narrow[10];
	write_npy("narrow.npy", "<f4", false, "5, 2", narrow, sizeof narrow);
	expect(1, "run parts --data x=narrow.npy -o none.npz", "err.txt",
	       "expected f32[4,3], found f32[5,2]");
	CHECK(access("none.npz", F_OK), "a rejected run leaves a file");
	expect(2, "grad --data x=x.npy -o g.npz", "err.txt", "one argument too many: grad");
	expect(2, "run --data x=x.npy", "err.txt", "expected -o");
	expect(1, "run parts --data x=ones -o no/such/x.npz", "err.txt",
	       "no/such/x.npz: cannot write");
	full_output();
	full_disk();
	printf("trainer: verbs, options, exit status, resume\n");
}

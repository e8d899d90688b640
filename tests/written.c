// written.c: checks temporary files, recorded inputs and escaped text.
// Names, permissions, links, and which files are removed when.
#include "expect.h"
#include "files.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static mode_t mode_of(const char *path)
{
	struct stat about;
	return stat(path, &about) ? 0 : about.st_mode & 07777;
}

static bool exists(const char *path)
{
	return !access(path, F_OK);
}

static void names(void)
{
	struct amos_temp_file a, b;
	need_done(amos_file_open(&a, "out"));
	need_done(amos_file_open(&b, "out"));
	expect(strlen(a.temporary) == strlen("amos.0123456789abcdef.aside"), "the name's length");
	expect(strcmp(a.temporary, b.temporary), "names of two files are equal");
	expect(!exists("out"), "the target is there before it is kept");
	fputs("b", b.to);
	need_done(amos_file_keep(&b));
	amos_file_drop(&a);
	expect(exists("out"), "the target is not there after it was kept");
	need_done(amos_file_open(&a, "out"));
	const char *temporary = strdupa(a.temporary);
	amos_file_drop_all();
	expect(!exists(temporary), "a temporary file is left at an end");
	amos_file_drop(&a);
}

static void permissions(void)
{
	struct amos_temp_file file;
	umask(027);
	need_done(amos_file_open(&file, "new"));
	need_done(amos_file_keep(&file));
	expect(mode_of("new") == 0640, "a new file has not the permissions of the umask");
	chmod("new", 0606);
	need_done(amos_file_open(&file, "new"));
	expect(mode_of(file.temporary) == 0606, "a temporary file can be read by others");
	need_done(amos_file_keep(&file));
	expect(mode_of("new") == 0606, "a file that is replaced changes its permissions");
	need_done(amos_file_open(&file, "/dev/null"));
	expect(mode_of(file.temporary) == 0600, "what goes to a device can be read by others");
	need_done(amos_file_keep(&file));
	umask(022);
}

// A link to another directory: the temporary file is made there, and the link stays.
static void links(void)
{
	struct amos_temp_file file;
	mkdir("folder", 0777);
	write_file("folder/target", "old", 3);
	expect(!symlink("folder/target", "link"), "a link");
	need_done(amos_file_open(&file, "link"));
	expect(strstr(file.temporary, "/folder/amos.") != NULL,
	       "not beside what the link leads to");
	fputs("newer", file.to);
	need_done(amos_file_keep(&file));
	char at[8] = "";
	expect(readlink("link", at, sizeof at) > 0, "the link was replaced");
	struct stat about;
	expect(!stat("folder/target", &about) && about.st_size == 5, "what it leads to was not");
}

// Files left by killed processes are removed; not files being written, links, or other names.
static void sweeping(void)
{
	static const char *const stay[] = {"sweep/amos.0123456789abcdeg.aside",
	                                   "sweep/amos.0123456789abcdef.aside.bak",
	                                   "sweep/mine.0123456789abcdef.aside"};
	mkdir("sweep", 0777);
	write_file("sweep/amos.0123456789abcdef.aside", "", 0);
	expect(!symlink("../new", "sweep/amos.0123456789abcde0.aside"), "a link");
	for (int i = 0; i < COUNT(stay); i++)
		write_file(stay[i], "", 0);
	struct amos_temp_file live;
	need_done(amos_file_open(&live, "sweep/out"));
	amos_file_clean("sweep");
	expect(exists(live.temporary), "a file that is being written was removed");
	expect(!exists("sweep/amos.0123456789abcdef.aside"), "what was left is still there");
	expect(exists("sweep/amos.0123456789abcde0.aside"), "a link was removed");
	for (int i = 0; i < COUNT(stay); i++)
		expect(exists(stay[i]), stay[i]);
	amos_file_drop(&live);
}

// Returns the name of a temporary file of the target that a killed process left.
static const char *leave(Arena *arena, const char *target)
{
	struct amos_temp_file file;
	need_done(amos_file_open(&file, target));
	const char *name = format(arena, "%s", file.temporary);
	amos_file_drop(&file);
	write_file(name, "", 0);
	return name;
}

// The next writer of a target removes what is left of it, but nothing while another writes it.
static void leaving(void)
{
	mkdir("leave", 0777);
	Arena *arena = arena_new();
	const char *own = leave(arena, "leave/out"), *other = leave(arena, "leave/other"),
	           *linker = format(arena, "%s.tmp1234567", own);
	write_file(linker, "", 0);
	struct amos_temp_file first, second;
	need_done(amos_file_open(&first, "leave/out"));
	expect(!exists(own) && !exists(linker), "what was left is still there");
	expect(exists(other), "what was left of another target was removed");
	write_file(linker, "", 0);
	need_done(amos_file_open(&second, "leave/out"));
	expect(exists(linker) && exists(first.temporary), "a file in use was removed");
	amos_file_drop(&first);
	amos_file_drop(&second);
	arena_free(arena);
}

static int read_beneath(const char *folder, const char *other, const char *name)
{
	int file = amos_input_beneath(folder, other, name);
	if (file >= 0)
		close(file);
	return file >= 0;
}

// Files named by another file, laid out as a download: own/ has links into blobs/, next to secret.
static void beneath(const char *here)
{
	static const struct {
		const char *to, *name;
		bool read, other; // from own/; with blobs/ as the other directory
	} cases[] = {{NULL, "data", true, true},
	             {NULL, "sub/data", true, true},
	             {NULL, "absent", false, false},
	             {"data", "near", true, true},
	             {"sub/../data", "winding", true, true},
	             {"../own/data", "around", true, true},
	             {"../blobs/data", "blob", false, true},
	             {"../secret", "out", false, false},
	             {"../blobs", "folder", false, false},
	             {"near", "chain", true, true},
	             {"out", "out_chain", false, false},
	             {"loop", "loop", false, false},
	             {"/dev/null", "device", false, false},
	             {"/etc/passwd", "absolute", false, false},
	             {"/proc/self/fd/9", "handle", false, false}};
	mkdir("own", 0777), mkdir("own/sub", 0777), mkdir("blobs", 0777), mkdir("own2", 0777);
	static const char *const files[] = {"own/data", "own/sub/data", "blobs/data", "own2/data",
	                                    "secret"};
	for (int i = 0; i < COUNT(files); i++)
		write_file(files[i], "x", 1);
	expect(dup2(open("secret", O_RDONLY), 9) == 9, "a descriptor");
	Arena *arena = arena_new();
	const char *own = format(arena, "%s/own", here), *blobs = format(arena, "%s/blobs", here);
	for (int i = 0; i < COUNT(cases); i++) {
		const char *name = cases[i].name;
		expect(!cases[i].to || !symlink(cases[i].to, format(arena, "own/%s", name)), name);
		expect(read_beneath("own", NULL, name) == cases[i].read, name);
		expect(read_beneath(own, blobs, name) == cases[i].other,
		       format(arena, "%s, of two", name));
	}
	expect(!symlink(format(arena, "%s/data", own), "own/whole"), "a link");
	expect(read_beneath("own", NULL, "whole"), "an absolute link that stays");
	expect(!symlink("../own2/data", "own/longer"), "a link");
	expect(!read_beneath("own", NULL, "longer"), "a folder whose name begins the same");
	arena_free(arena);
}

static void outputs(void)
{
	write_file("input", "x", 1);
	int file = amos_input("input", 0);
	expect(file >= 0 && amos_output_check("out") == AMOS_DONE, "another file");
	expect(!symlink("input", "input_link") && !link("input", "input_twin"), "links");
	expect(amos_output_check("input") == AMOS_INPUT, "an input");
	expect(amos_output_check("./folder/../input") == AMOS_INPUT, "an input by another path");
	expect(amos_output_check("input_link") == AMOS_INPUT, "an input by a link");
	expect(amos_output_check("input_twin") == AMOS_INPUT, "an input by its other name");
	expect(amos_output_check("/proc/self/exe") == AMOS_INPUT, "the program");
	expect(amos_output_check("folder") == AMOS_INPUT, "a folder");
	expect(amos_output_check("") == AMOS_INPUT, "no name");
	expect(amos_output_check("/dev/null") == AMOS_DONE, "a device");
	close(file);
}

// Of many inputs each is recorded once, in the order of their opening.
static void many_inputs(void)
{
	enum { MANY = 20000 };
	char name[64];
	size_t before = 0;
	while (amos_input_path(before))
		before++;
	expect(!mkdir("inputs", 0777), "a folder");
	for (int i = 0; i < 2 * MANY; i++) {
		snprintf(name, sizeof name, "inputs/%d", i % MANY);
		if (i < MANY)
			write_file(name, "x", 1);
		int file = amos_input(name, 0);
		expect(file >= 0, name);
		close(file);
	}
	snprintf(name, sizeof name, "inputs/%d", MANY - 1);
	expect(!strcmp(amos_input_path(before + MANY - 1), name), "the last in its place");
	expect(!amos_input_path(before + MANY), "none twice");
	expect(amos_output_check("inputs/77") == AMOS_INPUT, "one of many");
	expect(amos_output_check("inputs/other") == AMOS_DONE, "none of many");
}

// Output for a terminal of text that arrives in parts.
static void shown(void)
{
	static const struct {
		const char *text, *shown;
		size_t count, taken;
		bool last;
	} cases[] = {{"a\tb\n", "a\tb\n", 4, 4, false},
	             {"\033[2J\r", "\\x1b[2J\\x0d", 5, 5, false},
	             {"\0a\177", "\\x00a\\x7f", 3, 3, false},
	             {"\xc3\xa4\xe2\x82", "\xc3\xa4", 4, 2, false},
	             {"\xe2\x82\xac\xe2\x82", "\xe2\x82\xac\\xe2\\x82", 5, 5, true},
	             {"\xe2\x80", "", 2, 0, false},
	             {"\xe2\x80\xae", "\\xe2\\x80\\xae", 3, 3, false},
	             {"\xc2\x9b", "\\xc2\\x9b", 2, 2, false},
	             {"\xc0", "\\xc0", 1, 1, false},
	             {"\xf0\x9f\x98", "", 3, 0, false}};
	for (int i = 0; i < COUNT(cases); i++) {
		char *text;
		size_t size;
		FILE *to = open_memstream(&text, &size);
		size_t taken = amos_print_text(to, cases[i].text, cases[i].count, cases[i].last);
		fclose(to);
		expect(taken == cases[i].taken && !strcmp(text, cases[i].shown), text);
		free(text);
	}
}

int main(void)
{
	Arena *arena = arena_new();
	const char *here = copy_string(arena, own_folder());
	if (chdir(here))
		return 1;
	names();
	permissions();
	links();
	sweeping();
	leaving();
	beneath(here);
	outputs();
	many_inputs();
	shown();
	arena_free(arena);
	return expected();
}

// data.c: checks data sources, complete and corrupt, batches, shapes and conversions.
// Batches: windows, shuffles, splits, masks. Shapes: bound from the data.
#include "inputs.h"
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

// ---- fixtures -------------------------------------------------------------------------

static void write_gz(const char *path, const void *bytes, unsigned count)
{
	gzFile file = gzopen(path, "wb");
	CHECK(file && gzwrite(file, bytes, count) == (int)count && gzclose(file) == Z_OK, "%s",
	      path);
}

static int64_t elements(int slot)
{
	int64_t n = 1;
	for (int a = 0; a < slots[slot].rank; a++)
		n *= slots[slot].dim[a];
	return n;
}

static double at(int slot, int64_t i)
{
	return amos_number(amos_slot_bytes(m, slot), slots[slot].type, i);
}

// Checks that `source` gives the numbers first, first + step, ...
static void gives(const char *source, int exact, double first, double step)
{
	CHECK(!fit_source(exact, source), "%s", source);
	CHECK(!amos_data_eval(data, m, 0, data->batch), "%s", source);
	for (int64_t i = 0; i < elements(0); i++) {
		double found = at(0, i), wanted = first + step * (double)i;
		CHECK(fabs(found - wanted) <= 1e-6 * fabs(wanted),
		      "%s: element %d is %g, wanted %g", source, (int)i, found, wanted);
	}
}

// Checks that `source` is rejected with a message that has both words.
static void rejected(const char *source, int exact, const char *word, const char *other)
{
	int status = fit_source(exact, source);
	CHECK(status == AMOS_INPUT, "%s: status %d", source, status);
	CHECK(strstr(amos_error(), word) && strstr(amos_error(), other),
	      "%s: the message lacks '%s' or '%s'", source, word, other);
}

// ---- formats --------------------------------------------------------------------------

static void npy(void)
{
	float f[8] = {1, 2, 3, 4, 5, 6, 7, 8}, columns[6] = {1, 4, 2, 5, 3, 6};
	uint16_t big[6], half[6] = {0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600};
	for (int i = 0; i < 6; i++)
		big[i] = (uint16_t)((i + 1) << 8);
	declare(0, "x", E_f32, 0, 2, 2, 3);
	write_npy("f4.npy", "<f4", 0, "2, 3", f, 24);
	write_npy("fortran.npy", "<f4", 1, "2, 3", columns, 24);
	write_npy("big.npy", ">u2", 0, "2, 3", big, 12);
	write_npy("half.npy", "<f2", 0, "2, 3", half, 12);
	gives("f4.npy", 1, 1, 1);
	gives("fortran.npy", 1, 1, 1);
	gives("big.npy", 1, 1, 1);
	gives("half.npy", 1, 1, 1);
	gives("f4.npy", 0, 1, 1);
	write_npy("flat.npy", "<f4", 0, "6,", f, 24);
	rejected("flat.npy", 1, "found f32[6]", "expected f32[2,3]");
	write_npy("wide.npy", "<f4", 0, "2, 4", f, 32);
	rejected("wide.npy", 0, "found f32[2,4]", "expected f32[2,3]");
	write_npy("strings.npy", "<U4", 0, "2, 3", f, 24);
	rejected("strings.npy", 1, "strings.npy", "'<U4'");
	write_npy("short.npy", "<f4", 0, "2, 300", f, 24);
	rejected("short.npy", 1, "short.npy", "truncated");
	write_npy("overflow.npy", "<f4", 0, "4611686018427387904, 4611686018427387904", f, 24);
	rejected("overflow.npy", 1, "overflow.npy", "2^59");
	write_npy("shape.npy", "<f4", 0, "2, -3", f, 24);
	rejected("shape.npy", 1, "shape.npy", "corrupt");
	write_file("empty.npy", "", 0);
	rejected("empty.npy", 1, "empty.npy", "empty");
	rejected("missing.npy", 1, "missing.npy", "No such file");
	float nan[6] = {1, 2, NAN, 4, 5, 6};
	write_npy("nan.npy", "<f4", 0, "2, 3", nan, 24);
	rejected("nan.npy", 0, "element 2: ", "other than NaN, found nan");
	double large[6] = {1, 2, 3, 4, 1e300, 6};
	write_npy("large.npy", "<f8", 0, "2, 3", large, 48);
	rejected("large.npy", 0, "element 4: ", "range of f32");
}

// Returns the file of a source.
static const char *file_in(const char *source)
{
	return source + (strncmp(source, "wav:", 4) ? 0 : 4);
}

// Every prefix of a good file is rejected without a crash.
static void truncated(const char *good, const char *name)
{
	size_t size;
	const char *bytes = read_file(arena, good, &size);
	for (size_t n = 0; n < size; n += n < 300 ? 1 : 97) {
		write_file(file_in(name), bytes, n);
		CHECK(fit_source(1, name) == AMOS_INPUT, "%s cut at %zu of %zu is taken", good, n,
		      size);
	}
}

// Files with one changed byte are rejected or accepted, without a crash.
static void changed(const char *good, const char *name)
{
	size_t size;
	char *bytes = read_file(arena, good, &size);
	for (size_t n = 0; n < size; n++) {
		char held = bytes[n];
		bytes[n] = (char)(held ^ (1 << n % 8));
		write_file(file_in(name), bytes, size);
		fit_source(1, name);
		bytes[n] = held;
	}
}

static void npz(void)
{
	float f[6] = {1, 2, 3, 4, 5, 6}, other[2] = {7, 8};
	uint16_t brain[3] = {0x3F80, 0x4000, 0x4040};
	struct amos_array arrays[] = {
	    {.name = "x", .type = E_f32, .rank = 2, .dim = {2, 3}, .bytes = f},
	    {.name = "other", .type = E_f32, .rank = 1, .dim = {2}, .bytes = other},
	    {.name = "brain", .type = E_bf16, .rank = 1, .dim = {3}, .bytes = brain},
	    {.name = "one", .type = E_f32, .bytes = f},
	    {.name = "none", .type = E_f32, .rank = 2, .dim = {0, 3}, .bytes = f}};
	CHECK(!amos_npz_write("a.npz", 5, arrays), "write");
	declare(0, "x", E_f32, 0, 2, 2, 3);
	gives("a.npz:x", 1, 1, 1);
	struct amos_options options = options_of("data", "a.npz", NULL);
	CHECK(!attach(1, &options), "arrays by their names; those of no input are left");
	gives("a.npz", 1, 1, 1); // the array with the input's name
	CHECK(!amos_npz_write("b.npz", 4, arrays + 1), "write");
	rejected("b.npz", 1, "4 arrays", "b.npz:KEY");
	rejected("a.npz:z", 1, "no array 'z'", "a.npz");
	int64_t n;
	struct amos_array *read;
	CHECK(!amos_npz_read("a.npz", &n, &read) && n == 5, "%d arrays", (int)n);
	CHECK(!strcmp(read[2].name, "brain") && read[2].type == E_f32 &&
	          amos_number(read[2].bytes, E_f32, 2) == 3,
	      "bf16 travels as f32");
	CHECK(read[3].rank == 0 && read[4].dim[0] == 0, "rank 0 and no elements");
	amos_npz_free(n, read);
	truncated("a.npz", "cut.npz");
	changed("a.npz", "changed.npz");
	CHECK(amos_npz_write("no/such/folder.npz", 1, arrays) == AMOS_INPUT,
	      "a folder that is not there");
}

static void raw(void)
{
	uint16_t u[6] = {1, 2, 3, 4, 5, 6};
	write_file("tokens.bin", u, 12);
	declare(0, "x", E_i64, 0, 2, 2, 3);
	gives("tokens.bin:u16", 0, 1, 1);
	rejected("tokens.bin:u17", 0, "u17", "expected a type");
	rejected("tokens.bin", 0, "tokens.bin", "unknown file format");
	write_file("odd.bin", u, 11);
	rejected("odd.bin:u16", 0, "a multiple of 2 bytes, for u16", "found 11");
	declare(0, "x", E_i64, 6, 2, 2, 3);
	rejected("tokens.bin:u16", 0, "token 5: ", "from 0 to 5, found 6");
	declare(0, "x", E_u8, 0, 2, 2, 3);
	u[5] = 256;
	write_file("tokens.bin", u, 12);
	rejected("tokens.bin:u16", 0, "token 5: ", "u8, found 256");
}

static void idx(void)
{
	unsigned char images[16 + 12] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2};
	for (int i = 0; i < 12; i++)
		images[16 + i] = (unsigned char)(17 * i);
	write_file("images-idx3-ubyte", images, sizeof images);
	write_gz("images-idx3-ubyte.gz", images, sizeof images);
	declare(0, "x", E_f32, 0, 4, 3, 1, 2, 2);
	gives("images-idx3-ubyte", 0, 0, 17.0 / 255);
	gives("images-idx3-ubyte.gz", 0, 0, 17.0 / 255);
	gives("raw(images-idx3-ubyte)", 0, 0, 17);
	CHECK(strstr(data->note, "3 samples"), "%s", data->note);
	declare(0, "x", E_f32, 0, 2, 3, 4);
	gives("images-idx3-ubyte", 0, 0, 17.0 / 255);
	declare(0, "x", E_f32, 0, 3, 3, 4, 1);
	gives("images-idx3-ubyte", 0, 0, 17.0 / 255);
	declare(0, "x", E_i32, 0, 3, 3, 2, 2);
	gives("images-idx3-ubyte", 1, 0, 17);
	truncated("images-idx3-ubyte", "cut-idx3-ubyte");
	truncated("images-idx3-ubyte.gz", "cut-idx3-ubyte.gz");
	changed("images-idx3-ubyte", "changed-idx3-ubyte");
	unsigned char shorts[] = {0, 0, 11, 1, 0, 0, 0, 3, 0, 1, 0, 2, 0, 3};
	write_file("shorts.idx", shorts, sizeof shorts);
	declare(0, "x", E_i64, 0, 1, 3);
	gives("shorts.idx", 0, 1, 1);
}

static void write_text(const char *path, const char *text)
{
	write_file(path, text, strlen(text));
}

// Tables as other programs write them: byte order marks, CRLF, quotes, blank lines, names.
static void dialects(void)
{
	declare(0, "x", E_f32, 0, 2, 3, 2);
	write_text("mark.csv", "\xEF\xBB\xBF\r\n1,2\r\n\r\n3,4\r\n5,\"6\"");
	gives("mark.csv", 0, 1, 1);
	write_text("quotes.csv", "\"a, \"\"b\"\"\", c\n\"1\" , 2\n3,4,\n5,6\n");
	gives("quotes.csv", 0, 1, 1);
	gives("quotes.csv:0,c", 0, 1, 1);
	write_text("mark.jsonl", "\xEF\xBB\xBF[1,2]\r\n\r\n[3,4]\r\n[5,6]");
	gives("mark.jsonl", 0, 1, 1);
	declare(0, "x", E_f32, 0, 1, 3);
	write_text("named.csv", "x,2\n1,8\n2,8\n3,8\n");
	gives("named.csv:x", 0, 1, 1);
	gives("named.csv:0", 0, 1, 1);
}

// One malformed line is an error that names it, and no line is dropped, changed or cut.
static void malformed(void)
{
	static const struct {
		const char *text, *where, *found;
	} lines[] = {
	    {"1,x\n3,4\n", "line 1, column 1: ", "found x\nhelp: remove the line if"},
	    {"1,\n3,4\n", "line 1, column 1: ", "found nothing"},
	    {"\n1,2\n3,y\n", "line 3, column 1: ", "found y"},
	    {"a,b\n1,2\n3\n", "line 3, column 1: ", "found nothing"},
	    {"1,2\n3,4,,5\n", "line 2 has more cells", "2"},
	    {"1,2\n\"3,4\",5\n", "line 2, column 0: ", "found 3,4"},
	    {"1,2\n3,\"4\n", "line 2, column 1: ", "a quote is not closed"},
	    {"1,2\r3,4\n5,6\n", "line 1, column 1: ", "found 2\r3"},
	    {"1,2\n3,1e999\n", "line 2, column 1: 1e999", "range of a double"},
	    {"1;2\n3;4\n", "line 2, column 0: ", "found 3;4"},
	    {"1,2\n3,nan\n", "element 3: ", "other than NaN, found nan"},
	};
	declare(0, "x", E_f32, 0, 2, 2, 2);
	for (int i = 0; i < COUNT(lines); i++) {
		write_text("line.csv", lines[i].text);
		rejected("line.csv", 0, lines[i].where, lines[i].found);
	}
	write_file("zero.csv", "1,2\n3,4\0,5\n", 12);
	rejected("zero.csv", 0, "line 2", "found a zero byte");
	write_text("line.jsonl", "[1,2]\n[3,4\n");
	rejected("line.jsonl", 0, "line 2", "not JSON");
	write_text("line.jsonl", "[1,2]\n[3,1e999]\n");
	rejected("line.jsonl", 0, "line 2", "overflow");
}

static void tables(void)
{
	const char *csv = "a, b ,\"c\"\n1,9,2\n3,9,4\n\n5,9,6\n";
	write_file("t.csv", csv, strlen(csv));
	declare(0, "x", E_f32, 0, 2, 3, 2);
	gives("t.csv:0,2", 0, 1, 1);
	gives("t.csv:a,c", 0, 1, 1);
	declare(0, "x", E_i64, 7, 1, 3);
	gives("t.csv:c", 0, 2, 2);
	rejected("t.csv:d", 0, "no column 'd'", "t.csv");
	rejected("t.csv:7", 0, "line 1, column 7", "nothing");
	rejected("t.csv:4294967296", 0, "no column '4294967296'", "t.csv");
	rejected("t.csv:", 0, "no column ''", "t.csv");
	write_file("long.csv", "1,2\n3,4,5\n", 10);
	rejected("long.csv", 0, "line 2 has more cells", "2");
	write_file("digits.csv", "9007199254740992\n9007199254740993\n", 34);
	rejected("digits.csv", 0, "line 2, column 0: 9007199254740993", "digits than a double");
	write_file("digits.jsonl", "{\"a\": -9007199254740993}\n", 25);
	rejected("digits.jsonl:a", 0, "line 1: -9007199254740993", "digits than a double");
	write_file("bad.csv", "1,2\n3,x\n", 8);
	rejected("bad.csv:1", 0, "line 2, column 1: ", "expected a number, found x");
	const char *jsonl =
	    "{\"v\": [1, 2], \"n\": 1}\n{\"n\": 2, \"v\": [3, 4]}\n{\"v\": [5, 6], \"n\": 3}\n";
	write_file("t.jsonl", jsonl, strlen(jsonl));
	gives("t.jsonl:n", 0, 1, 1);
	declare(0, "x", E_f32, 0, 2, 3, 2);
	gives("t.jsonl:v", 0, 1, 1);
	rejected("t.jsonl:w", 0, "line 1", "no field 'w'");
	const char *ragged = "{\"v\": [1, 2]}\n{\"v\": [3]}\n";
	write_file("ragged.jsonl", ragged, strlen(ragged));
	rejected("ragged.jsonl:v", 0, "line 2", "differ in shape");
}

// Writes two tensors of 3 elements, of which the first has this description.
static void write_tensors(const char *path, const char *about)
{
	char file[512] = {0};
	const float f[6] = {1, 2, 3, 4, 5, 6};
	int size = snprintf(file + 8, 400,
	                    "{\"x\":{%s},\"y\":{\"dtype\":\"F32\",\"shape\":[1,3],"
	                    "\"data_offsets\":[12,24]}}",
	                    about);
	file[0] = (char)size;
	file[1] = (char)(size >> 8);
	memcpy(file + 8 + size, f, sizeof f);
	write_file(path, file, 8 + (size_t)size + sizeof f);
}

// A tensor has the bytes of its own, all of them.
static void safetensors_offsets(void)
{
	static const char *const wrong[] = {
	    "\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,12]",
	    "\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,24]",
	    "\"dtype\":\"F64\",\"shape\":[1,3],\"data_offsets\":[0,12]",
	    "\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[12,0]",
	    "\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0.0,12.0]",
	    "\"dtype\":\"F32\",\"shape\":[1,3.0],\"data_offsets\":[0,12]",
	    "\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,12]},"
	    "\"x\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[12,24]"};
	declare(0, "x", E_f32, 0, 2, 1, 3);
	write_tensors("two.safetensors",
	              "\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,12]");
	gives("two.safetensors:x", 1, 1, 1);
	gives("two.safetensors:y", 1, 4, 1);
	for (int i = 0; i < COUNT(wrong); i++) {
		write_tensors("two.safetensors", wrong[i]);
		rejected("two.safetensors:x", 1, "two.safetensors", "two.safetensors");
	}
}

static void safetensors(void)
{
	char file[256] = {0};
	float f[6] = {1, 2, 3, 4, 5, 6};
	const char *header = "{\"__metadata__\":{\"a\":\"b\"},\"x\":{\"dtype\":\"F32\",\"shape\":["
	                     "2,3],\"data_offsets\":[0,24]}}";
	uint64_t size = strlen(header);
	memcpy(file, &size, 8);
	memcpy(file + 8, header, size);
	memcpy(file + 8 + size, f, 24);
	write_file("x.safetensors", file, 8 + size + 24);
	declare(0, "x", E_f32, 0, 2, 2, 3);
	gives("x.safetensors:x", 1, 1, 1);
	gives("x.safetensors", 1, 1, 1);
	rejected("x.safetensors:y", 1, "no array 'y'", "x.safetensors");
	truncated("x.safetensors", "cut.safetensors");
	changed("x.safetensors", "changed.safetensors");
}

static void text(void)
{
	mkdir("book", 0777);
	mkdir("book/b", 0777);
	write_file("book/b/2", "cd", 2);
	write_file("book/a", "ab", 2);
	write_file("book/c", "", 0);
	write_file("book/d", "ef", 2);
	declare(0, "x", E_i64, 0, 2, 2, 3);
	gives("text:book", 0, 'a', 1);
	gives("text:book:auto", 0, 0, 1);
	CHECK(!amos_data_write_vocab(data, "."), "keep");
	const char *vocabulary = read_file(arena, "x.vocab", NULL);
	CHECK(!strcmp(vocabulary, "a\nb\nc\nd\ne\nf\n"), "%s", vocabulary);
	gives("text:book:x.vocab", 0, 0, 1);
	write_file("v", "f\ne\nd\n\\x63\nb\na\n", 15);
	gives("text:book:v", 0, 5, -1);
	write_file("v", "f\ne\n", 4);
	rejected("text:book:v", 0, "\\x61 at 0", "not in the vocabulary of 2");
	write_file("v", "f\nff\n", 5);
	rejected("text:book:v", 0, "line 2", "one byte per line");
	write_file("v", "f\nf\n", 4);
	rejected("text:book:v", 0, "line 2", "repeats a byte");
	rejected("text:nothing", 0, "nothing", "No such file");
	declare(0, "x", E_i64, 100, 2, 2, 3);
	rejected("text:book", 0, "token 3: ", "text:PATH:auto");
}

// ---- recordings -----------------------------------------------------------------------

static unsigned char *little(unsigned char *to, int bytes, uint64_t value)
{
	for (int i = 0; i < bytes; i++)
		*to++ = (unsigned char)(value >> 8 * i);
	return to;
}

// Writes a WAV file of `count` bytes of samples; `says`: the length that the chunk of samples
// gives.
static void write_wav(const char *path, int format, int channels, int bits, int rate,
                      const void *samples, size_t count, uint32_t says)
{
	static unsigned char file[1024];
	unsigned char *to = file;
	uint32_t block = (uint32_t)(channels * bits / 8);
	bool extended = format >> 16;
	memcpy(to, "RIFF\0\0\0\0WAVEodd \3\0\0\0abc\0fmt ", 28);
	to = little(to + 28, 4, extended ? 40 : 16);
	to = little(to, 2, extended ? 0xFFFE : (uint64_t)format);
	to = little(little(little(to, 2, (uint64_t)channels), 4, (uint64_t)rate), 4, 0);
	to = little(little(to, 2, block), 2, (uint64_t)bits);
	if (extended) {
		static const char guid[] = "\0\0\0\0\20\0\200\0\0\252\0\70\233\161";
		to = little(little(to, 8, 22), 2, format & 0xFFFF);
		memcpy(to, guid, 14);
		to += 14;
	}
	memcpy(to, "data", 4);
	to = little(to + 4, 4, says);
	memcpy(to, samples, count);
	write_file(path, file, (size_t)(to - file) + count);
}

static void wav_types(void)
{
	int16_t shorts[8] = {0, 4096, 8192, 12288, 16384, 20480, 24576, 28672}, pairs[16];
	uint8_t bytes[8], triples[24];
	int32_t words[8];
	float floats[8];
	double doubles[8];
	for (int i = 0; i < 8; i++) {
		bytes[i] = (uint8_t)(128 + 16 * i);
		little(triples + 3 * i, 3, (uint64_t)i << 20);
		words[i] = i << 28;
		doubles[i] = floats[i] = (float)i / 8;
		pairs[2 * i] = (int16_t)(shorts[i] - 4096);
		pairs[2 * i + 1] = (int16_t)(i == 7 ? 32767 : shorts[i] + 4096);
	}
	declare(0, "x", E_f32, 0, 2, 2, 4);
	write_wav("8.wav", 1, 1, 8, 8000, bytes, 8, 8);
	write_wav("16.wav", 1, 1, 16, 8000, shorts, 16, 16);
	write_wav("24.wav", 1, 1, 24, 8000, triples, 24, 24);
	write_wav("32.wav", 1, 1, 32, 8000, words, 32, 32);
	write_wav("float.wav", 3, 1, 32, 8000, floats, 32, 32);
	write_wav("double.wav", 0x10003, 1, 64, 8000, doubles, 64, 64);
	write_wav("long.wav", 0x10001, 1, 24, 8000, triples, 24, 24);
	write_wav("pipe.wav", 1, 1, 16, 8000, shorts, 16, UINT32_MAX);
	gives("wav:8.wav", 0, 0, .125);
	gives("wav:16.wav", 0, 0, .125);
	gives("wav:16.wav:8000", 0, 0, .125);
	gives("wav:24.wav", 0, 0, .125);
	gives("wav:32.wav", 0, 0, .125);
	gives("wav:float.wav", 0, 0, .125);
	gives("wav:double.wav", 0, 0, .125);
	gives("wav:long.wav", 0, 0, .125);
	gives("wav:pipe.wav", 0, 0, .125);
	CHECK(strstr(data->note, "0 s at 8000 samples per second, 1 recording\n"), "%s",
	      data->note);
	gives("windows(wav:16.wav; 4)", 0, 0, .125);
	pairs[15] = 32767;
	write_wav("stereo.wav", 1, 2, 16, 8000, pairs, 28, 28);
	declare(0, "x", E_f32, 0, 2, 1, 7);
	gives("wav:stereo.wav", 0, 0, .125);
	shorts[0] = -32768;
	write_wav("least.wav", 1, 1, 16, 8000, shorts, 2, 2);
	declare(0, "x", E_f32, 0, 1, 1);
	gives("wav:least.wav", 0, -1, 0);
	truncated("least.wav", "wav:cut.wav");
	changed("least.wav", "wav:changed.wav");
	changed("double.wav", "wav:changed.wav");
}

static void wav_is_checked(void)
{
	int16_t shorts[8] = {0};
	declare(0, "x", E_f32, 0, 2, 2, 4);
	rejected("wav:16.wav:16000", 0, "expected 16000 samples per second, found 8000",
	         "does not resample");
	rejected("wav:16.wav:fast", 0, "samples per second after the colon", "wav:16.wav");
	rejected("wav:none.wav", 0, "none.wav", "No such file");
	rejected("wav:book/a", 0, "book/a", "not a WAV file");
	FILE *big = fopen("rifx.wav", "wb");
	fwrite("RIFX\0\0\0\4WAVE", 1, 12, big);
	fclose(big);
	rejected("wav:rifx.wav", 0, "little-endian samples (RIFX)", "ffmpeg");
	rejected("wav:book", 0, "book", "no .wav files");
	write_wav("bad.wav", 1, 1, 12, 8000, shorts, 16, 16);
	rejected("wav:bad.wav", 0, "found WAV format 1 of 12 bits", "ffmpeg");
	write_wav("bad.wav", 7, 1, 8, 8000, shorts, 16, 16);
	rejected("wav:bad.wav", 0, "found WAV format 7 of 8 bits", "ffmpeg");
	write_wav("bad.wav", 1, 0, 16, 8000, shorts, 16, 16);
	rejected("wav:bad.wav", 0, "bad.wav", "corrupt WAV header");
	write_wav("bad.wav", 1, 1, 16, 8000, shorts, 16, 18);
	rejected("wav:bad.wav", 0, "truncated", "expected 18 bytes of samples, found 16");
	write_wav("bad.wav", 1, 1, 16, 8000, shorts, 16, 15);
	rejected("wav:bad.wav", 0, "15 bytes of samples of 2", "corrupt");
	write_wav("bad.wav", 1, 1, 16, 8000, shorts, 0, 0);
	rejected("wav:bad.wav", 0, "bad.wav", "no samples");
	float nan[2] = {0, NAN};
	write_wav("bad.wav", 3, 1, 32, 8000, nan, 8, 8);
	declare(0, "x", E_f32, 0, 2, 1, 2);
	rejected("wav:bad.wav", 0, "other than NaN", "found nan");
	unsigned char large[64] = "RF64\377\377\377\377WAVEds64\20\0\0\0\0\0\0\0\0\0\0\0\4";
	memcpy(large + 36, "fmt \20\0\0\0\1\0\1\0\100\37\0\0\0\0\0\0\2\0\20\0", 24);
	write_file("large.wav", large, 60);
	rejected("wav:large.wav", 0, "large.wav", "no samples");
	unsigned char samples[72];
	memcpy(samples, large, 60);
	memcpy(samples + 60, "data\377\377\377\377\0\0\0\100", 12);
	write_file("large.wav", samples, 72);
	gives("wav:large.wav", 0, 0, .5);
	write_file("large.wav", samples, 70);
	rejected("wav:large.wav", 0, "truncated", "expected 4 bytes of samples, found 2");
}

// Recordings by class: what a window never crosses, their order, and labels.
static void wav_folders(void)
{
	int16_t a[5] = {0, 1024, 2048, 3072, 4096}, b[3] = {8192, 9216, 10240};
	mkdir("clips", 0777);
	mkdir("clips/no", 0777);
	mkdir("clips/yes", 0777);
	write_wav("clips/no/1.wav", 1, 1, 16, 8000, a, 10, 10);
	write_wav("clips/no/2.wav", 1, 1, 16, 8000, a, 10, 10);
	write_wav("clips/yes/1.WAV", 1, 1, 16, 8000, b, 6, 6);
	write_file("clips/yes/notes.txt", "a", 1);
	// no/1, yes/1 and no/2: 5, 3 and 5 samples
	declare(0, "x", E_f32, 0, 2, 5, 3);
	declare(1, "y", E_i64, 2, 1, 5);
	struct amos_options options = options_of("data", "x=windows(wav:clips; 3, 2)", "data",
	                                         "y=classes(windows(wav:clips; 3, 2))", NULL);
	CHECK(!attach(0, &options) && !amos_data_eval(data, m, 0, 5), "%s", amos_error());
	static const int first[5] = {0, 2, 8, 0, 2}, label[5] = {0, 0, 1, 0, 0};
	for (int i = 0; i < 15; i++)
		CHECK(at(0, i) * 32 == first[i / 3] + i % 3, "element %d is %g", i, at(0, i));
	for (int i = 0; i < 5; i++)
		CHECK(at(1, i) == label[i], "label %d", i);
	CHECK(strstr(data->note, "data: y: classes no, yes\n"), "%s", data->note);
	// A recording shorter than a window is padded; windows of windows leave it out.
	declare(0, "x", E_f32, 0, 2, 1, 4);
	CHECK(!fit_source(1, "windows(wav:clips/yes; 4)"), "%s", amos_error());
	CHECK(!amos_data_eval(data, m, 0, 1) && at(0, 2) == 10.0 / 32 && at(0, 3) == 0, "padded");
	declare(0, "x", E_f32, 0, 3, 2, 2, 2);
	CHECK(!fit_source(0, "windows(windows(wav:clips; 2); 2)"), "%s", amos_error());
	CHECK(strstr(data->note, "shorter than a window left out: 1\n"), "%s", data->note);
	// Windows of labels that do not say where a recording ends are refused, even if they agree
	// in number.
	int32_t frames[5] = {0};
	write_npy("frames.npy", "<i4", 0, "5,", frames, 20);
	declare(1, "y", E_i64, 2, 2, 2, 2);
	options = options_of("data", "x=windows(windows(wav:clips; 2); 2)", "data",
	                     "y=windows(frames.npy; 2)", NULL);
	CHECK(attach(0, &options) == AMOS_INPUT && strstr(amos_error(), "windows per recording"),
	      "%s", amos_error());
	options = options_of("data", "x=windows(windows(wav:clips/yes; 1); 2, 1)", "data",
	                     "y=windows(frames.npy; 2, 1)", NULL);
	CHECK(attach(0, &options) == AMOS_INPUT && strstr(amos_error(), "as of 'x'"), "%s",
	      amos_error());
	write_npy("three.npy", "<i4", 0, "3,", frames, 12);
	declare(0, "x", E_f32, 0, 3, 2, 2, 1);
	declare(1, "y", E_i64, 2, 2, 2, 2);
	options = options_of("data", "x=windows(windows(wav:clips/yes; 1); 2, 1)", "data",
	                     "y=windows(three.npy; 2, 1)", NULL);
	CHECK(!attach(0, &options), "%s", amos_error());
	declare(0, "x", E_f32, 0, 2, 2, 4);
	rejected("windows(wav:16.wav)", 0, "expected windows(SOURCE; SIZE)", "wav:16.wav");
	rejected("windows(wav:16.wav; 0)", 0, "expected windows(SOURCE; SIZE)", "from 1");
	rejected("windows(wav:16.wav; 4, 2, 1)", 0, "expected windows(SOURCE; SIZE)", "from 1");
	rejected("windows(frames.npy; 6)", 0, "at least 6 elements", "found 5");
	rejected("classes(frames.npy)", 0, "classes()", "recordings of wav:DIR");
	rejected("classes(wav:clips/yes)", 0, "no directory of its class", "DIR/CLASS/NAME.wav");
}

// ---- batches --------------------------------------------------------------------------

static void shuffles(void)
{
	enum { N = 103, BATCH = 5, PER_EPOCH = N / BATCH };
	int64_t x[N];
	for (int i = 0; i < N; i++)
		x[i] = i;
	write_npy("order.npy", "<i8", 0, "103,", x, sizeof x);
	declare(0, "x", E_i64, N, 1, BATCH);
	int first[2][N];
	for (int seed = 0; seed < 2; seed++) {
		struct amos_options options =
		    options_of("data", "x=order.npy", "seed", seed ? "1" : "0", NULL);
		CHECK(!attach(0, &options) && amos_data_batches(data) == PER_EPOCH, "batches");
		for (int epoch = 0; epoch < 20; epoch++) {
			int seen[N] = {0};
			for (int b = 0; b < PER_EPOCH; b++) {
				CHECK(!amos_data_train(data, m, epoch * PER_EPOCH + b), "batch");
				for (int i = 0; i < BATCH; i++) {
					int got = (int)at(0, i);
					CHECK(!seen[got]++, "epoch %d has sample %d twice", epoch,
					      got);
					if (!epoch)
						first[seed][b * BATCH + i] = got;
				}
			}
		}
	}
	int equal = 0, in_place = 0;
	for (int i = 0; i < PER_EPOCH * BATCH; i++) {
		equal += first[0][i] == first[1][i];
		in_place += first[0][i] == i;
	}
	CHECK(equal < 12 && in_place < 12, "two seeds agree in %d places, order and file in %d",
	      equal, in_place);
}

static void windows(void)
{
	enum { N = 1000, WINDOW = 8, BATCH = 4 };
	uint16_t x[N];
	for (int i = 0; i < N; i++)
		x[i] = (uint16_t)i;
	write_file("stream.bin", x, sizeof x);
	declare(0, "x", E_i64, 0, 2, BATCH, WINDOW);
	declare(1, "y", E_i32, 0, 2, BATCH, WINDOW);
	struct amos_options options = options_of("data", "x=stream.bin:u16", "data",
	                                         "y=shift(stream.bin:u16)", "split", "0.9", NULL);
	CHECK(!attach(0, &options), "fit");
	CHECK(amos_data_batches(data) == 899 / 8 / 4 && amos_data_held_out(data) == 99 / 8,
	      "%d batches, %d windows", (int)amos_data_batches(data),
	      (int)amos_data_held_out(data));
	int least = N, most = 0;
	for (int run = 0; run < 2000; run++) {
		CHECK(!amos_data_train(data, m, run), "batch");
		for (int i = 0; i < BATCH * WINDOW; i++) {
			CHECK(at(1, i) == at(0, i) + 1, "the label is not the next token");
			CHECK(i % WINDOW == 0 || at(0, i) == at(0, i - 1) + 1, "a window is torn");
			least = at(0, i) < least ? (int)at(0, i) : least;
			most = at(1, i) > most ? (int)at(1, i) : most;
		}
	}
	CHECK(least == 0 && most == 899, "tokens %d to %d of the first 900", least, most);
	for (int from = 0; from < 12; from += BATCH) {
		CHECK(!amos_data_eval(data, m, from, BATCH), "batch");
		for (int i = 0; i < BATCH * WINDOW; i++)
			CHECK(at(0, i) == 900 + from * WINDOW + i, "evaluation goes in order");
	}
	CHECK(amos_data_eval_samples(data) == 12, "all windows that the last tokens make");
	CHECK(amos_data_eval(data, m, 9, BATCH) == AMOS_INPUT, "a batch behind the last window");
	options = options_of("data", "x=stream.bin:u16", "data", "y=order.npy", NULL);
	CHECK(attach(0, &options) == AMOS_INPUT && strstr(amos_error(), "as of 'x'"),
	      "two lengths");
	options = options_of("data", "x=stream.bin:u16", "data", "y=stream.bin:u16", "split",
	                     "0.995", NULL);
	CHECK(attach(0, &options) == AMOS_INPUT && strstr(amos_error(), "--split"),
	      "nothing held out");
	write_file("few.bin", x, 40);
	options = options_of("data", "x=few.bin:u16", "data", "y=few.bin:u16", NULL);
	CHECK(attach(0, &options) == AMOS_INPUT &&
	          strstr(amos_error(), "fewer than one batch of 4"),
	      "too few");
}

static void masks(void)
{
	enum { N = 4000, WINDOW = 50, BATCH = 4, MASK = 99, RUNS = 50 };
	uint8_t x[N];
	for (int i = 0; i < N; i++)
		x[i] = (uint8_t)(i % 50);
	write_file("words.bin", x, sizeof x);
	declare(0, "x", E_i64, 100, 2, BATCH, WINDOW);
	declare(1, "y", E_i64, 100, 2, BATCH, WINDOW);
	slots[1].ignore = -100;
	struct amos_options options =
	    options_of("data", "x=words.bin:u8", "data", "y=masked(words.bin:u8)", "mask", "0.3",
	               "mask-token", "99", NULL);
	CHECK(!attach(0, &options), "fit");
	CHECK(fabs(amos_data_labels(data, "y", 200, -100) - 60) < 1e-9 &&
	          amos_data_labels(data, "x", 200, 0) == 200 &&
	          fabs(amos_data_labels(data, "x", 200, 7) - 196) < 1e-9,
	      "labels");
	CHECK(fabs(amos_data_independent_batches(data) * 0.3 - (double)amos_data_batches(data)) <
	          1e-9,
	      "batches as full of labels");
	double chosen = 0, hidden = 0, kept = 0;
	for (int run = 0; run < RUNS; run++) {
		CHECK(!amos_data_train(data, m, run), "batch");
		for (int i = 0; i < BATCH * WINDOW; i++) {
			chosen += at(1, i) != -100;
			hidden += at(1, i) != -100 && at(0, i) == MASK;
			kept += at(1, i) != -100 && at(0, i) == at(1, i);
		}
	}
	double all = RUNS * BATCH * WINDOW;
	CHECK(fabs(chosen / all - 0.3) < 0.02, "%g of the tokens are masked", chosen / all);
	CHECK(fabs(hidden / chosen - 0.8) < 0.03 && fabs(kept / chosen - 0.1) < 0.03,
	      "%g hidden, %g kept", hidden / chosen, kept / chosen);
	options =
	    options_of("data", "x=words.bin:u8", "data", "y=words.bin:u8", "mask", "0.3", NULL);
	CHECK(attach(0, &options) == AMOS_INPUT && strstr(amos_error(), "masked(SOURCE)"),
	      "no labels");
	options = options_of("data", "x=words.bin:u8", "data", "y=masked(words.bin:u8)", NULL);
	CHECK(attach(0, &options) == AMOS_INPUT && strstr(amos_error(), "--mask-token"),
	      "no token");
	options = options_of("data", "x=words.bin:u8", "data", "y=masked(words.bin:u8)",
	                     "mask-token", "100", NULL);
	CHECK(attach(0, &options) == AMOS_INPUT && strstr(amos_error(), "from 0 to 99"),
	      "a token out of range");
}

static void labels_are_checked(void)
{
	int32_t y[4] = {0, 9, -100, 10};
	write_npy("y.npy", "<i4", 0, "3,", y, 12);
	declare(0, "x", E_i64, 10, 1, 3);
	slots[0].ignore = -100;
	CHECK(!fit_source(0, "y.npy"), "labels to ignore are allowed");
	slots[0].ignore = 0;
	rejected("y.npy", 0, "y.npy", "from 0 to 9, found -100");
	write_npy("y.npy", "<i4", 0, "4,", y, 16);
	slots[0].ignore = -100;
	rejected("y.npy", 0, "element 3: ", "from 0 to 9, found 10");
	float f[3] = {0, 1, 1.5f};
	write_npy("f.npy", "<f4", 0, "3,", f, 12);
	rejected("f.npy", 0, "element 2: ", "found 1.5");
}

static void names_are_checked(void)
{
	declare(0, "x", E_f32, 0, 1, 4);
	struct amos_options options = options_of("data", "y=ones", NULL);
	CHECK(attach(0, &options) == AMOS_INPUT && strstr(amos_error(), "input 'x' has no data"),
	      "no data");
	options = options_of("data", "x=ones", "data", "z=ones", NULL);
	CHECK(attach(1, &options) == AMOS_INPUT &&
	          strstr(amos_error(), "--data z: the model has no such input; the inputs are x"),
	      "no input");
	options = options_of("data", "x=ones", "data", "x=zeros", NULL);
	CHECK(attach(1, &options) == AMOS_INPUT && strstr(amos_error(), "twice"), "twice");
	options = options_of("data", "f.npy", NULL);
	CHECK(attach(1, &options) == AMOS_INPUT && strstr(amos_error(), "NAME=f.npy"), "no name");
	gives("ones", 1, 1, 0);
	gives("zeros", 1, 0, 0);
	entry.reads = "00";
	options = options_of(NULL);
	CHECK(!attach(1, &options), "an input that is not read needs no data");
	entry.reads = "11";
	rejected("images:photos", 0, "photos", "No such file");
}

// ---- shapes ---------------------------------------------------------------------------

static struct amos_input free_input(const char *name, int rank, const char *batch)
{
	struct amos_input input = {
	    .name = name, .type = E_f32, .rank = rank, .dim = {-1, -1, -1, -1}, .axis = {batch}};
	return input;
}

static int bind(int exact, struct amos_options options, int n, struct amos_input *inputs)
{
	close_all();
	CHECK(!amos_data_open(&options, exact, &data), "open");
	return amos_data_bind(data, n, inputs);
}

static void binds(void)
{
	struct amos_input images = free_input("x", 3, "N"), labels = free_input("y", 1, "N");
	struct amos_input two[] = {images, labels};
	float many[200 * 4] = {0};
	write_npy("images.npy", "|u1", 0, "200, 2, 2", many, 800);
	CHECK(!bind(0, options_of("data", "x=images.npy", NULL), 2, two), "bind");
	CHECK(two[0].dim[0] == 32 && two[0].dim[1] == 2 && two[0].dim[2] == 2 &&
	          two[1].dim[0] == 32,
	      "the default batch");
	CHECK(amos_data_batches(data) == 6, "%d batches", (int)amos_data_batches(data));
	two[0] = images, two[1] = labels;
	CHECK(!bind(0, options_of("data", "x=images.npy", "batch", "50", "split", "0.5", NULL), 2,
	            two) &&
	          two[0].dim[0] == 50,
	      "--batch");
	CHECK(amos_data_batches(data) == 2 && amos_data_held_out(data) == 100, "batches");
	two[0] = images, two[1] = labels;
	two[0].dim[0] = 20;
	CHECK(!bind(0, options_of("data", "x=images.npy", NULL), 2, two) &&
	          amos_data_batches(data) == 10,
	      "a fixed batch");
	CHECK(bind(0, options_of("data", "x=images.npy", "batch", "10", NULL), 1, two) ==
	          AMOS_INPUT,
	      "--batch beside a fixed one");
	CHECK(strstr(amos_error(), "expected 20"), "says which");
	two[0] = images;
	CHECK(!bind(1, options_of("data", "x=images.npy", NULL), 1, two) && two[0].dim[0] == 200,
	      "exact");
	two[0].dim[2] = 3;
	CHECK(bind(1, options_of("data", "x=images.npy", NULL), 1, two) == AMOS_INPUT,
	      "exact, another shape");
	struct amos_input frames = free_input("x", 2, "T");
	frames.dim[1] = 4;
	two[0] = frames;
	two[1] = labels;
	write_npy("sequences.npy", "<f4", 0, "10, 5, 4", many, 800);
	write_npy("steps.npy", "<f4", 0, "10, 5", many, 200);
	struct amos_options sequences =
	    options_of("data", "x=sequences.npy", "data", "y=steps.npy", NULL);
	for (int again = 0; again < 2; again++) { // with open dimensions, and with these sizes
		CHECK(!bind(0, sequences, 2, two), "a sample is the input: %s", amos_error());
		CHECK(two[0].dim[0] == 5 && two[1].dim[0] == 5 && data->batch == 1 &&
		          amos_data_batches(data) == 10,
		      "samples without a batch axis");
	}
	two[0] = frames;
	CHECK(bind(0, options_of("data", "x=sequences.npy", "batch", "2", NULL), 1, two) ==
	          AMOS_INPUT,
	      "--batch 2");
	CHECK(strstr(amos_error(), "--accumulate 2"), "%s", amos_error());
	struct amos_input tokens = free_input("x", 2, "B");
	CHECK(!bind(0, options_of("data", "x=words.bin:u8", NULL), 1, &tokens), "tokens");
	CHECK(tokens.dim[0] == 32 && tokens.dim[1] == -1, "a window's length is not in the data");
	tokens.dim[0] = -1;
	tokens.dim[1] = 40;
	CHECK(!bind(0, options_of("data", "x=words.bin:u8", "batch", "5", NULL), 1, &tokens) &&
	          amos_data_batches(data) == 20,
	      "N is %d", (int)amos_data_batches(data));
}

// An array of its input's exact shape, next to samples, is the same in every batch; if all arrays
// are like that, they form one batch.
static void constants(void)
{
	float many[24 * 2], mask[9];
	for (int i = 0; i < 24 * 2; i++)
		many[i] = (float)i;
	for (int i = 0; i < 9; i++)
		mask[i] = (float)i;
	write_npy("many.npy", "<f4", 0, "24, 2", many, sizeof many);
	write_npy("mask.npy", "<f4", 0, "3, 3", mask, sizeof mask);
	struct amos_input two[] = {free_input("y", 2, ""), free_input("x", 2, "N")};
	two[0].dim[0] = two[0].dim[1] = 3;
	struct amos_options options =
	    options_of("data", "x=many.npy", "data", "y=mask.npy", "batch", "6", NULL);
	CHECK(!bind(0, options, 2, two), "bind: %s", amos_error());
	CHECK(two[1].dim[0] == 6 && amos_data_batches(data) == 4, "batches beside a constant");
	declare(0, "y", E_f32, 0, 2, 3, 3);
	declare(1, "x", E_f32, 0, 2, 6, 2);
	CHECK(!attach(0, &options) && amos_data_batches(data) == 4, "attach: %s", amos_error());
	for (int b = 0; b < 4; b++) {
		CHECK(!amos_data_train(data, m, b), "batch");
		CHECK(!memcmp(amos_slot_bytes(m, 0), mask, sizeof mask), "a constant changes");
	}
	declare(1, "x", E_f32, 0, 2, 24, 2);
	options = options_of("data", "x=many.npy", "data", "y=mask.npy", NULL);
	CHECK(!attach(0, &options) && amos_data_batches(data) == 1, "attach: %s", amos_error());
	CHECK(!amos_data_train(data, m, 1) && !memcmp(amos_slot_bytes(m, 1), many, sizeof many),
	      "one batch keeps its order");
	slots[1].counts = 1;
	CHECK(!attach(0, &options) && !amos_data_train(data, m, 1) &&
	          !memcmp(amos_slot_bytes(m, 1), many, sizeof many),
	      "nor do samples of a single batch change places: rows may be nodes of a graph");
	declare(1, "x", E_f32, 0, 2, 3, 2);
	CHECK(!attach(0, &options) && amos_data_batches(data) == 8, "a constant of 3 rows");
	slots[0].counts = 1;
	CHECK(attach(0, &options) == AMOS_INPUT &&
	          strstr(amos_error(), "--data x: expected 3 samples, as of 'y'; found 24"),
	      "samples are as many: %s", amos_error());
	slots[0].counts = 0;
}

// All 16-bit floats, converted and back.
static void halves(void)
{
	enum { N = 1 << 16 };
	uint16_t *h = malloc(2 * N);
	float *f = malloc(4 * N);
	int n = 0;
	for (int i = 0; i < N; i++)
		if ((i & 0x7C00) != 0x7C00 || !(i & 0x3FF))
			h[n++] = (uint16_t)i;
	for (int i = 0; i < n; i++)
		f[i] = (float)amos_number(h, E_f16, i);
	CHECK(f[0] == 0 && amos_number((uint16_t[]){1}, E_f16, 0) == 0x1p-24 &&
	          amos_number((uint16_t[]){0x7BFF}, E_f16, 0) == 65504,
	      "halves");
	write_file("all.bin", f, 4 * (size_t)n);
	declare(0, "x", E_f16, 0, 1, n);
	CHECK(!fit_source(1, "all.bin:f32") && !amos_data_eval(data, m, 0, 1), "all halves");
	CHECK(!memcmp(amos_slot_bytes(m, 0), h, 2 * (size_t)n),
	      "a half is not itself after the way to f32 and back");
	free(h);
	free(f);
}

int main(void)
{
	enter_folder();
	npy();
	npz();
	raw();
	idx();
	tables();
	dialects();
	malformed();
	safetensors();
	safetensors_offsets();
	text();
	wav_types();
	wav_is_checked();
	wav_folders();
	shuffles();
	windows();
	masks();
	labels_are_checked();
	names_are_checked();
	binds();
	constants();
	halves();
	close_all();
	printf("data: npy npz raw IDX csv jsonl safetensors text WAV, cut and changed; order, "
	       "windows, "
	       "masks, shapes, halves\n");
}

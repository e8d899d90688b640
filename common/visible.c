// visible.c: escapes names and messages for display, byte by byte as \xHH.
// Escaped are control characters, changes of text direction and invalid UTF-8.
#include "common.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Characters that are invisible or change how others are displayed.
static const struct {
	uint32_t from, to;
} hidden[] = {{0, 0x1F},        {0x7F, 0x9F},     {0xAD, 0xAD},       {0x61C, 0x61C},
              {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},   {0xD800, 0xDFFF},
              {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE0FFF}, {0x110000, UINT32_MAX}};

// Returns the length of the character at `s` if it is printable, else 0.
static int shown(const unsigned char *s)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	if (*s >= ' ' && *s < 0x7F) // the common case
		return 1;
	int n = *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : *s >> 3 == 30 ? 4 : 0;
	uint32_t code = n < 2 ? *s : *s & (0x7Fu >> n);
	for (int i = 1; i < n; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		code = code << 6 | (s[i] & 0x3F);
	}
	for (size_t k = 0; k < sizeof hidden / sizeof *hidden; k++)
		if (code >= hidden[k].from && code <= hidden[k].to)
			return 0;
	return n && code >= least[n] ? n : 0;
}

static bool is_digit(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

// True for a backslash that begins what looks like an escape of ours.
static bool misleads(const char *s)
{
	return s[0] == '\\' && s[1] == 'x' && is_digit(s[2]) && is_digit(s[3]);
}

size_t amos_visible(char *to, size_t room, const char *text, bool exact)
{
	size_t count = 0;
	while (*text) {
		int n = exact && misleads(text) ? 0 : shown((const unsigned char *)text);
		char escape[5];
		if (!n)
			snprintf(escape, sizeof escape, "\\x%02x", (unsigned char)*text);
		const char *from = n ? text : escape;
		for (size_t i = 0, of = n ? (size_t)n : 4; i < of; i++, count++)
			if (count + 1 < room)
				to[count] = from[i];
		text += n ? n : 1;
	}
	if (room)
		to[count < room ? count : room - 1] = 0;
	return count;
}

void amos_unescape(char *text)
{
	char *to = text;
	for (unsigned byte; *text; to++)
		if (misleads(text) && sscanf(text + 2, "%2x", &byte) == 1) {
			*to = (char)byte;
			text += 4;
		} else {
			*to = *text++;
		}
	*to = 0;
}

void amos_print(FILE *to, const char *text, const char *indent)
{
	while (*text) {
		size_t count = 0; // at once: stderr has no buffer
		for (int n; (n = shown((const unsigned char *)text + count)); count += (size_t)n)
			;
		fwrite(text, 1, count, to);
		text += count;
		if (*text == '\n')
			fprintf(to, "\n%s", text[1] && text[1] != ' ' ? indent : "");
		else if (*text)
			fprintf(to, "\\x%02x", (unsigned char)*text);
		text += !!*text;
	}
}

void amos_print_args(FILE *to, const char *fmt, va_list args)
{
	char *text = NULL;
	if (vasprintf(&text, fmt, args) < 0)
		return;
	amos_print(to, text, "");
	free(text);
}

// True if the bytes are the start of an incomplete character.
static bool is_open(const char *text, size_t count)
{
	static const char rest[] = "\xbf\xbf\xbf";
	char longer[8] = "";
	if (count > 3)
		return false;
	memcpy(longer, text, count);
	for (size_t more = 1; count + more <= 4; more++) {
		memcpy(longer + count, rest, more);
		if (shown((const unsigned char *)longer) == (int)(count + more))
			return true;
	}
	return false;
}

size_t amos_print_text(FILE *to, const char *text, size_t count, bool last)
{
	size_t at = 0;
	while (at < count && (last || !is_open(text + at, count - at))) {
		char next[5] = "";
		memcpy(next, text + at, count - at < 4 ? count - at : 4);
		int n = shown((const unsigned char *)next);
		if (n || *next == '\n' || *next == '\t')
			fwrite(next, 1, (size_t)(n ? n : 1), to);
		else
			fprintf(to, "\\x%02x", (unsigned char)*next);
		at += (size_t)(n ? n : 1);
	}
	return at;
}

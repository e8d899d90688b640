// freestanding.c: takes the place of what the core has of libc and of the CPU's features, in a
// program without a system.
#include "core.h"
#include <stdarg.h>

// ---- errors ---------------------------------------------------------------------------

static char error_text[320]; // a longer text ends early
static size_t error_count;

const char *amos_error(void)
{
	return error_text;
}

static void put_char(char c)
{
	if (error_count + 1 < sizeof error_text)
		error_text[error_count++] = c;
}

static void put_text(const char *text)
{
	while (*text)
		put_char(*text++);
}

static void put_integer(long long n)
{
	char digit[20];
	int count = 0;
	unsigned long long rest = n < 0 ? 0 - (unsigned long long)n : (unsigned long long)n;
	for (; !count || rest; rest /= 10)
		digit[count++] = (char)('0' + rest % 10);
	if (n < 0)
		put_char('-');
	while (count)
		put_char(digit[--count]);
}

// Writes nine digits and an exponent, or up to six digits after the point. In 32 bits, which all
// CPUs convert to.
static void put_number(double x)
{
	int exponent = 0;
	if (x - x != 0) {
		put_text(x != x ? "nan" : x < 0 ? "-inf" : "inf");
		return;
	}
	if (x < 0)
		put_char('-');
	for (x = x < 0 ? -x : x; x >= 1e9; x /= 10)
		exponent++;
	int32_t whole = (int32_t)x, unit = 1000000;
	int32_t millionths = (int32_t)((x - whole) * 1e6 + 0.5);
	put_integer(whole + millionths / unit);
	if (millionths % unit)
		put_char('.');
	while (millionths %= unit)
		put_char((char)('0' + millionths / (unit /= 10)));
	if (exponent) {
		put_char('e');
		put_integer(exponent);
	}
}

int amos_fail(int status, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	for (error_count = 0; *fmt; fmt++)
		if (*fmt != '%')
			put_char(*fmt);
		else if (*++fmt == 's')
			put_text(va_arg(args, const char *));
		else if (*fmt == 'g')
			put_number(va_arg(args, double));
		else if (*fmt == 'd')
			put_integer(va_arg(args, int));
		else if (*fmt == '.') { // %.*s
			int count = va_arg(args, int);
			for (const char *text = va_arg(args, const char *); count > 0; count--)
				put_char(*text++);
			fmt += 2;
		} else { // %lld
			fmt += 2;
			put_integer(va_arg(args, long long));
		}
	va_end(args);
	error_text[error_count] = 0;
	return status;
}

// ---- the CPU, instances -----------------------------------------------------------------

const struct amos_model *amos_best(const struct amos_model *model)
{
	return model;
}

int amos_check_cpu(const struct amos_model *model)
{
	(void)model;
	return AMOS_DONE;
}

void amos_close(struct amos *m)
{
	(void)m;
}

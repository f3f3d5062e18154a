/* JSON of a peer. Nothing it can send leads outside of the line: every value is reached from the line's
   beginning, over values that are JSON themselves, and a number is taken only within its range. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"

#define DEPTH_MAX 16           /* of objects and arrays within each other; the exchange has 5 */

struct wanted { const char *key; int index; const char *name, *value; };

static const char *blank(const char *at) { return at + strspn(at, " \t\r"); }

static const char *past_string(const char *at)
{
	if (*at++ != '"')
		return NULL;
	for (; *at != '"'; at++)
		if ((unsigned char)*at < ' ' || (*at == '\\' && (unsigned char)*++at < ' '))
			return NULL;
	return at + 1;
}

static const char *past_word(const char *at)
{
	static const char *const words[] = {"true", "false", "null"};
	for (int i = 0; i < 3; i++)
		if (!strncmp(at, words[i], strlen(words[i])))
			return at + strlen(words[i]);
	size_t n = strspn(at, "+-.0123456789eE");
	return n ? at + n : NULL;
}

static int is_key(const char *name, const char *key)
{
	size_t n = strlen(key);
	return !strncmp(name + 1, key, n) && name[1 + n] == '"';
}

/* The end of the value at `at`, or NULL if it is none; of its own items the wanted one is noted. */
static const char *past(const char *at, int depth, struct wanted *wanted)
{
	if (*at != '{' && *at != '[')
		return *at == '"' ? past_string(at) : past_word(at);
	char end = *at == '{' ? '}' : ']';
	if (depth == DEPTH_MAX)
		return NULL;
	at = blank(at + 1);
	if (*at == end)
		return at + 1;
	for (int i = 0;; i++) {
		const char *name = at;
		if (end == '}') {
			if (!(at = past_string(at)) || *(at = blank(at)) != ':')
				return NULL;
			at = blank(at + 1);
		}
		if (wanted && (wanted->key ? end == '}' && is_key(name, wanted->key) : i == wanted->index))
			wanted->name = name, wanted->value = at;
		if (!(at = past(at, depth + 1, NULL)))
			return NULL;
		at = blank(at);
		if (*at == end)
			return at + 1;
		if (*at != ',')
			return NULL;
		at = blank(at + 1);
	}
}

/* The object that a line is, or NULL. */
const char *object_of(const char *line)
{
	const char *at = blank(line), *end = *at == '{' ? past(at, 0, NULL) : NULL;
	return end && !*blank(end) ? at : NULL;
}

/* The value of a key of an object; NULL if there is none, or no object. */
const char *member(const char *object, const char *key)
{
	struct wanted wanted = {key, 0, NULL, NULL};
	return object && *object == '{' && past(object, 0, &wanted) ? wanted.value : NULL;
}

/* Item `i` of an array or object, with its `name` if the caller wants that; NULL behind the last. */
const char *item(const char *within, int i, const char **name)
{
	struct wanted wanted = {NULL, i, NULL, NULL};
	if (!within || (*within != '[' && *within != '{') || !past(within, 0, &wanted))
		return NULL;
	if (name)
		*name = wanted.name;
	return wanted.value;
}

/* A whole number from `least` to `most`; true and false are 1 and 0. */
int whole(const char *value, uint64_t least, uint64_t most, uint64_t *out)
{
	if (!value)
		return 0;
	uint64_t n = *value == 't';
	if (isdigit((unsigned char)*value)) {
		char *end;
		errno = 0;
		n = strtoull(value, &end, 10);
		if (errno || (*end && strchr(".eE+-", *end)))
			return 0;
	} else if (most > 1 || (*value != 't' && *value != 'f')) {
		return 0;
	}
	*out = n;
	return n >= least && n <= most;
}

/* A string of less than `room` plain characters. */
int text_of(const char *value, char *out, size_t room)
{
	size_t n = value && *value == '"' ? strcspn(value + 1, "\"\\") : room;
	if (n >= room || value[1 + n] != '"')
		return 0;
	memcpy(out, value + 1, n);
	out[n] = 0;
	return 1;
}

/* The beginning of a string, fit for a terminal and for a line of JSON. */
void printable(const char *value, char *out, size_t room)
{
	size_t n = 0;
	if (value && *value == '"')
		for (value++; *value && *value != '"' && n + 1 < room; value++)
			out[n++] = *value >= ' ' && *value <= '~' && *value != '\\' ? *value : '?';
	out[n] = 0;
}

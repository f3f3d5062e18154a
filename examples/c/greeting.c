/* What a peer says about itself and wants (docs/exchange.md, docs/conformance.md): a table of every
   key with its range. A reader returns NULL, or what is wrong; then nothing of it may be used. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "endpoint.h"

#define NEEDED UINT64_MAX      /* in place of what a key that is left out means */
#define SOURCES_MAX 64
#define SIZES_MAX 64
#define SOURCE_MIN 49152

struct field { const char *key; uint64_t least, most, otherwise; };

enum { NIC, QP_NUM, PSN, PMTU, MPR, MAX_WIMM, SEND_DEPTH, TRIM_NACK, DYNAMIC_MPR, SVC_TIME };
static const struct field ATTRIBUTES[] = {
	{"nic", 0, 0x7FFFFFFF, NEEDED}, {"qp_num", 3, 0xFFFFFF, NEEDED}, {"psn", 0, 0xFFFFFF, NEEDED},
	{"pmtu", 1024, 8192, NEEDED}, {"mpr", 1, 32640, NEEDED}, {"max_wimm", 1, 32640, NEEDED},
	{"send_depth", 1, MESSAGES, MESSAGES}, {"trim_nack", 0, 1, 1}, {"dynamic_mpr", 0, 1, 0},
	{"svc_time", 0, 1, 0},
};
static const struct field PORT = {"port", 1, 65535, NEEDED};
static const struct field SOURCE = {"sources", SOURCE_MIN, 65535, NEEDED};

enum { ADDR, LENGTH, RKEY };
static const struct field REGION[] = {
	{"addr", 0, UINT64_MAX, NEEDED}, {"length", 0, 1ull << 62, NEEDED},
	{"rkey", 0, UINT32_MAX, NEEDED},
};

/* What `mrc perf` may ask for, in addition to its test and sizes. */
static const struct field MEASUREMENT[] = {{"qps", 1, 1, NEEDED}, {"bidirectional", 0, 0, 0}};
static const struct field SIZE = {"sizes", 1, MESSAGE_MAX, NEEDED};

/* What a rule of the kit may ask for; `trim_nack` and `trimming` are left to the network. */
enum { PLANES, EVS, WITH_MPR, LINEAR_CNT, EXP_CNT, WITH_WIMM, RECEIVES };
static const struct field SETTINGS[] = {
	{"planes", 1, PLANES_MAX, 2}, {"evs", 1, PATHS_PER_PLANE, PATHS_PER_PLANE},
	{"mpr", 1, WINDOW, 512}, {"linear_cnt", 0, 255, 2}, {"exp_cnt", 0, 25, 1},
	{"max_wimm", 1, 32640, 128}, {"receives", 0, UINT32_MAX, 64}, {"trim_nack", 0, 1, 1},
	{"trimming", 0, 1, 0}, {"dynamic_mpr", 0, 0, 0},
};

#define COUNT(table) (sizeof (table) / sizeof *(table))

static const char *wrong(const char *format, ...)
{
	static char why[160];
	va_list args;
	va_start(args, format);
	vsnprintf(why, sizeof why, format, args);
	va_end(args);
	return why;
}

static const char *read_value(const char *value, const struct field *field, uint64_t *out)
{
	*out = field->otherwise;
	if ((!value && field->otherwise != NEEDED) || whole(value, field->least, field->most, out))
		return NULL;
	if (field->least == field->most)
		return wrong("%s: %llu is accepted", field->key, (unsigned long long)field->least);
	return wrong("%s: %llu to %llu is accepted", field->key, (unsigned long long)field->least,
		(unsigned long long)field->most);
}

static const char *read_fields(const char *object, const struct field *fields, size_t n,
	uint64_t *out)
{
	const char *why = NULL;
	for (size_t i = 0; i < n && !why; i++)
		why = read_value(member(object, fields[i].key), &fields[i], &out[i]);
	return why;
}

/* The address of a plane, of the family of our own. */
static const char *read_plane(const char *plane, const union address *own, union address *out)
{
	char name[INET6_ADDRSTRLEN];
	uint64_t port, source;
	const char *sources = member(plane, "sources"), *one, *why = read_value(member(plane, PORT.key),
		&PORT, &port);
	int n = 0, v4 = own->any.sa_family == AF_INET;
	memset(out, 0, sizeof *out);
	for (; !why && (one = item(sources, n, NULL)); n++)
		why = n < SOURCES_MAX ? read_value(one, &SOURCE, &source) : "sources: 1 to 64 are accepted";
	if (why)
		return why;
	if (!n)
		return "sources: 1 to 64 are accepted";
	if (!text_of(member(plane, "address"), name, sizeof name)
	    || inet_pton(own->any.sa_family, name,
		v4 ? (void *)&out->v4.sin_addr : (void *)&out->v6.sin6_addr) != 1)
		return wrong("address: one of IPv%d is accepted", v4 ? 4 : 6);
	out->any.sa_family = own->any.sa_family;
	*(v4 ? &out->v4.sin_port : &out->v6.sin6_port) = htons(port);
	return NULL;
}

const char *read_attributes(const struct endpoint *ep, const char *json, struct attributes *out)
{
	uint64_t found[COUNT(ATTRIBUTES)];
	const char *planes = member(json, "planes"), *why = read_fields(json, ATTRIBUTES,
		COUNT(ATTRIBUTES), found);
	if (why)
		return why;
	if (found[PMTU] & (found[PMTU] - 1))
		return "pmtu: 1024, 2048, 4096 or 8192 is accepted";
	*out = (struct attributes){found[QP_NUM], found[PSN], found[PMTU], found[MPR], found[MAX_WIMM],
		found[TRIM_NACK], 0, {{{0}}}};
	for (const char *one; !why && (one = item(planes, out->n_planes, NULL)); out->n_planes++)
		why = out->n_planes < ep->n_planes ? read_plane(one, &ep->own[out->n_planes],
			&out->plane[out->n_planes]) : wrong("planes: %d are here", ep->n_planes);
	return why || out->n_planes == ep->n_planes ? why : wrong("planes: %d are here", ep->n_planes);
}

/* A region of the peer, of at least this many bytes. */
const char *read_region(const char *json, uint64_t bytes, struct region *out)
{
	uint64_t found[COUNT(REGION)];
	const char *why = read_fields(json, REGION, COUNT(REGION), found);
	if (why)
		return why;
	if (found[LENGTH] < bytes || found[ADDR] > UINT64_MAX - found[LENGTH])
		return wrong("length: %llu or more, and no end behind all memory", (unsigned long long)bytes);
	*out = (struct region){found[ADDR], found[LENGTH], found[RKEY], NULL};
	return NULL;
}

/* The largest message of a measurement. */
static const char *read_measurement(const char *extra, struct purpose *out)
{
	char test[16];
	uint64_t found[COUNT(MEASUREMENT)], size;
	const char *sizes = member(extra, SIZE.key), *one, *why = read_fields(extra, MEASUREMENT,
		COUNT(MEASUREMENT), found);
	if (!text_of(member(extra, "test"), test, sizeof test) || strcmp(test, "write_bw"))
		return "test: write_bw is accepted";
	int n = 0;
	for (; !why && n <= SIZES_MAX && (one = item(sizes, n, NULL)); n++)
		if (!(why = read_value(one, &SIZE, &size)) && size > out->size)
			out->size = size;
	return why || (n && n <= SIZES_MAX) ? why : "sizes: 1 to 64 are accepted";
}

/* What a rule asks for, if all of it is known. */
static const char *read_settings(const char *with, struct purpose *out)
{
	uint64_t found[COUNT(SETTINGS)];
	const char *name, *why = read_fields(with, SETTINGS, COUNT(SETTINGS), found);
	char key[64];
	if (!with || *with != '{')
		return "with: an object is needed";
	for (size_t i = 0, k = 0; !why && item(with, i, &name); i++, k = 0) {
		printable(name, key, sizeof key);
		while (k < COUNT(SETTINGS) && strcmp(SETTINGS[k].key, key))
			k++;
		if (k == COUNT(SETTINGS) || i == COUNT(SETTINGS))
			return wrong("this endpoint has no %s", key);
	}
	*out = (struct purpose){1, 0, found[PLANES], found[EVS], found[WITH_MPR], found[LINEAR_CNT],
		found[EXP_CNT], found[WITH_WIMM], found[RECEIVES]};
	return why;
}

/* Why a peer has come: for a measurement, or to test. */
const char *read_purpose(const char *greeting, struct purpose *out)
{
	const char *extra = member(greeting, "extra"), *kit = member(extra, "conformance");
	*out = (struct purpose){0, 0, PLANES_MAX, PATHS_PER_PLANE, WINDOW, 3, 7, 128, 0};
	return kit ? read_settings(member(kit, "with"), out) : read_measurement(extra, out);
}

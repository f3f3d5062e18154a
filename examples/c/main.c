/* An MRC endpoint in plain C, written from docs/ and conformance/mrc.h: it measures with `mrc perf
   write_bw`, as server or client, and is tested by the rules of `mrc conformance`.

       cc -O2 -I ../../conformance -o mrc_endpoint *.c
       ./mrc_endpoint serve --planes 127.0.1.1,127.0.1.2 --secret HEX
       ./mrc_endpoint write HOST --planes 127.0.1.1,127.0.1.2 --secret HEX --size 1048576 --iters 1000 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "endpoint.h"

#define PORT 18515
#define SLOTS 4                        /* of the channel's ring, and how long each is */
#define SLOT_BYTES 32768
#define RING_BYTES (SLOTS * SLOT_BYTES)
#define CHANNEL_BYTES (2 * RING_BYTES + 1)
#define FILL 0xA5
#define TX_DEPTH 32
#define KIT_BYTES (1 << 20)

struct options {
	char *planes, *secret, *host;
	int port, once;
	uint32_t pmtu;
	uint64_t size, iters;
};

static struct endpoint *ep;
static struct line *line;
static uint8_t room[CHANNEL_BYTES];
static struct region theirs;
static int n_sent, n_received, channel_open;
static uint64_t data_done;

static void region_add(uint8_t *memory, uint64_t length)
{
	ep->region[ep->n_regions++] = (struct region){(uint64_t)(uintptr_t)memory, length,
		(uint32_t)rand() << 8 ^ (uint32_t)rand(), memory};
}

static void region_read(const char *json, struct region *out)
{
	out->va = strtoull(find(json, "addr"), NULL, 10);
	out->length = strtoull(find(json, "length"), NULL, 10);
	out->rkey = number(json, "rkey", 0);
}

/* --- the channel of `mrc perf`: JSON in a ring of the peer's memory, its length in an immediate -- */

static char *arrived;

/* What completed is counted, and a message that came is put into `arrived`; 0 if the peer left. */
static int go_on(void)
{
	if (line->fd >= 0)
		hear(ep, line, 0);
	for (struct event *e; (e = next_event(ep));) {
		if (e->kind == FAILED)
			die("a queue pair ended: %s", e->why);
		if (e->kind == COMPLETION && e->qp == 0)
			channel_open--;
		else if (e->kind == COMPLETION)
			data_done++;
		else {
			const uint8_t *slot = room + n_received++ % SLOTS * SLOT_BYTES;
			uint32_t n = e->imm < SLOT_BYTES ? e->imm : SLOT_BYTES;
			free(arrived);
			arrived = calloc(n + 1, 1);
			memcpy(arrived, slot, n);
			ep->qp[0].receives++;
		}
	}
	return line->fd >= 0;
}

static void wait_for_line_or(int (*holds)(void))
{
	while (!holds()) {
		turn(ep, line->fd, now_ns() + 1000000);
		if (!go_on() && !holds())
			die("the peer has left");
	}
}

static int nothing_open(void) { return channel_open == 0; }
static int has_arrived(void) { return arrived != NULL; }
static int is_ready(void) { return room[CHANNEL_BYTES - 1] == 1; }

static void channel_send(const char *text)
{
	size_t n = strlen(text), at = RING_BYTES + n_sent % SLOTS * SLOT_BYTES;
	memcpy(room + at, text, n);
	channel_open++;
	post(ep, 0, room + at, n, theirs.va + n_sent++ % SLOTS * SLOT_BYTES, theirs.rkey, 1, n);
	wait_for_line_or(nothing_open);
}

static char *channel_receive(void)
{
	wait_for_line_or(has_arrived);
	char *text = arrived;
	arrived = NULL;
	return text;
}

static void channel_start(const char *told, int as_server)
{
	region_read(find(told, "regions"), &theirs);
	ep->qp[0].receives = SLOTS;
	if (!as_server) {
		wait_for_line_or(is_ready);
		return;
	}
	room[CHANNEL_BYTES - 1] = 1;
	channel_open++;
	post(ep, 0, room + CHANNEL_BYTES - 1, 1, theirs.va + CHANNEL_BYTES - 1, theirs.rkey, 0, 0);
	wait_for_line_or(nothing_open);
}

static void channel_about(int qi)
{
	char own[8192], text[9000];
	write_attributes(ep, qi, own, sizeof own);
	snprintf(text, sizeof text, "{\"qps\": [%s], \"sink\": {\"addr\": %llu, \"length\": %llu,"
		" \"rkey\": %u}}", own, (unsigned long long)ep->region[1].va,
		(unsigned long long)ep->region[1].length, ep->region[1].rkey);
	channel_send(text);
}

static void take_about(int qi, char *about)
{
	if (!read_attributes(find(about, "qps"), &ep->qp[qi].peer))
		die("the peer's queue pair is not understood");
	region_read(find(about, "sink"), &theirs);
	connect_qp(ep, qi);
	free(about);
}

/* --- both ends of a measurement -------------------------------------------------------------- */

static double seconds(void) { return now_ns() / 1e9; }

/* Write messages, TX_DEPTH posted at a time; Gb/s. */
static double write_all(int qi, uint8_t *source, uint64_t size, uint64_t iters)
{
	uint64_t posted = 0, first = data_done;
	double begun = seconds();
	while (data_done - first < iters) {
		while (posted < iters && posted - (data_done - first) < TX_DEPTH
		       && post(ep, qi, source, size, theirs.va, theirs.rkey, 0, 0))
			posted++;
		turn(ep, line->fd, now_ns() + 1000000);
		if (!go_on())
			die("the peer has left");
	}
	return size * iters * 8 / (seconds() - begun) / 1e9;
}

static void as_client(const struct options *o)
{
	char text[512];
	uint8_t *source = malloc(o->size), *sink = calloc(o->size, 1);
	memset(source, FILL, o->size);
	region_add(room, sizeof room);
	new_qp(ep);
	line = line_to(o->host, o->port);
	if (!authenticate(line, o->secret, 0))
		die("the peer does not know the secret, or speaks another version");
	snprintf(text, sizeof text, "{\"test\": \"write_bw\", \"sizes\": [%llu], \"iterations\": %llu,"
		" \"duration_s\": 0.0, \"qps\": 1, \"tx_depth\": %d, \"bidirectional\": false}",
		(unsigned long long)o->size, (unsigned long long)o->iters, TX_DEPTH);
	char *told = shake(ep, line, 0, text, 0);
	channel_start(told, 0);
	free(told);
	region_add(sink, o->size);
	struct region peer = theirs;
	int qi = new_qp(ep);
	channel_about(qi);
	take_about(qi, channel_receive());
	struct region data = theirs;
	theirs = peer;
	snprintf(text, sizeof text, "{\"size\": %llu}", (unsigned long long)o->size);
	channel_send(text);
	theirs = data;
	double rate = write_all(qi, source, o->size, o->iters);
	theirs = peer;
	snprintf(text, sizeof text, "{\"sent\": {\"bytes\": %llu, \"iterations\": %llu,"
		" \"bw_peak_gbps\": %f, \"bw_average_gbps\": %f, \"msg_rate_mpps\": %f},"
		" \"stopped\": false}", (unsigned long long)o->size, (unsigned long long)o->iters, rate,
		rate, rate * 1e3 / 8 / o->size);
	channel_send(text);
	free(channel_receive());
	channel_send("{\"size\": 0}");
	printf("wrote %llu bytes, %.2f Gb/s\n", (unsigned long long)(o->size * o->iters), rate);
	line_close(line);
}

/* Bytes of the sink that are not what `mrc perf` writes. */
static uint64_t wrong_bytes(const uint8_t *sink, uint64_t n)
{
	uint64_t wrong = 0;
	for (uint64_t i = 0; i < n; i++)
		wrong += sink[i] != FILL;
	return wrong;
}

static void as_server(char *told)
{
	uint64_t size = strtoull(find(told, "sizes") + 1, NULL, 10);
	if (number(told, "qps", 0) != 1 || number(told, "bidirectional", 0) || strstr(told, "write_lat"))
		die("one queue pair of write_bw in one direction is served");
	uint8_t *sink = calloc(size, 1);
	channel_start(told, 1);
	region_add(sink, size);
	int qi = new_qp(ep);
	struct region peer = theirs;
	take_about(qi, channel_receive());
	theirs = peer;
	channel_about(qi);
	for (;;) {
		char *next = channel_receive();
		uint64_t bytes = number(next, "size", 0);
		free(next);
		if (!bytes)
			break;
		char *sent = channel_receive();
		uint64_t wrong = wrong_bytes(sink, bytes);
		printf("took %llu messages of %llu bytes, %llu bytes wrong\n",
			(unsigned long long)number(sent, "iterations", 0), (unsigned long long)bytes,
			(unsigned long long)wrong);
		free(sent);
		channel_send("{\"sent\": null}");
	}
	while (line->fd >= 0)                 /* the client leaves first */
		hear(ep, line, 1);
	free(sink);
}

/* --- the upper tester of the kit (docs/conformance.md) --------------------------------------- */

static void report(void)
{
	for (struct event *e; (e = next_event(ep));)
		if (e->kind == COMPLETION)
			say(line, "{\"completion\": %lld}", (long long)e->id);
		else if (e->kind == RECEIVE)
			say(line, "{\"receive\": %lld, \"imm\": %u}", (long long)e->id, e->imm);
		else
			say(line, "{\"error\": \"%s\"}", e->why);
}

static void as_target(uint8_t *sink, const char *told)
{
	uint8_t *source = malloc(KIT_BYTES);
	memset(source, FILL, KIT_BYTES);
	region_read(find(told, "regions"), &theirs);
	ep->qp[0].receives = number(find(told, "with"), "receives", 64);
	say(line, "{\"rtt_us\": %llu, \"rto_us\": %llu}", (unsigned long long)ep->base_rtt / 1000,
		(unsigned long long)ep->rto / 1000);
	while (line->fd >= 0) {
		char *word = hear(ep, line, 0);
		if (word && find(word, "post")) {
			uint64_t n = number(word, "post", 0);
			post(ep, 0, source, n < KIT_BYTES ? n : KIT_BYTES, theirs.va, theirs.rkey,
				find(word, "imm") != NULL, number(word, "imm", 0));
		} else if (word && find(word, "receives")) {
			ep->qp[0].receives = number(word, "receives", 0);
		} else if (word && find(word, "port")) {
			set_port(ep, number(word, "port", 0), number(word, "up", 1));
		} else if (word && find(word, "read")) {
			char hex[129] = "";
			uint64_t at = number(word, "read", 0), n = number(word, "bytes", 0);
			for (uint64_t i = 0; i < n && i < 64 && at + i < KIT_BYTES; i++)
				sprintf(hex + 2 * i, "%02x", sink[at + i]);
			say(line, "{\"read\": %llu, \"hex\": \"%s\"}", (unsigned long long)at, hex);
		} else {
			report();
			turn(ep, line->fd, now_ns() + 1000000);
		}
	}
	free(source);
}

/* What a rule asks for, as far as this endpoint has it; else what it has not. */
static const char *settings(const char *extra, int *mpr)
{
	static const char *const known[] = {"planes", "evs", "mpr", "linear_cnt", "exp_cnt", "max_wimm",
		"receives", "trim_nack", "dynamic_mpr", "trimming"};
	static char name[64];
	const char *with = find(extra, "with");
	for (const char *at = with + strcspn(with, "\"}"); *at == '"'; at += strcspn(at, "\"}")) {
		size_t n = strcspn(++at, "\"");
		int is_known = 0;
		snprintf(name, sizeof name, "%.*s", (int)n, at);
		for (size_t i = 0; i < sizeof known / sizeof *known; i++)
			is_known |= !strcmp(name, known[i]);
		if (!is_known || (!strcmp(name, "dynamic_mpr") && number(with, name, 0)))
			return name;
		at += n + 1;
	}
	ep->linear_cnt = number(with, "linear_cnt", 2);
	ep->exp_cnt = number(with, "exp_cnt", 1);
	ep->max_wimm = number(with, "max_wimm", 128);
	*mpr = number(with, "mpr", 512);
	return NULL;
}

/* --- options --------------------------------------------------------------------------------- */

static void serve_one(const struct options *o, int fd)
{
	char *planes = strdup(o->planes);
	uint8_t *sink = calloc(KIT_BYTES, 1);
	line = line_of(fd);
	if (!authenticate(line, o->secret, 1)) {
		line_close(line);
		free(planes), free(sink);
		return;
	}
	char *heard = hear(NULL, line, 1), *told = heard ? strdup(heard) : NULL;
	if (!told)
		die("the peer closed the connection");
	line->given = 0;                      /* it is heard once more, by the exchange */
	line->text[strlen(told)] = '\n';
	const char *kit = find(find(told, "extra"), "conformance");
	int mpr = WINDOW;
	ep = calloc(1, sizeof *ep);
	ep->pmtu = o->pmtu;
	ep->max_wimm = 128;
	open_planes(ep, planes, kit ? number(kit, "planes", 2) : PLANES_MAX,
		kit ? number(kit, "evs", PATHS_PER_PLANE) : PATHS_PER_PLANE);
	const char *missing = kit ? settings(kit, &mpr) : NULL;
	if (missing) {
		say(line, "{\"refused\": \"this endpoint has no %s\"}", missing);
	} else {
		region_add(kit ? sink : room, kit ? KIT_BYTES : sizeof room);
		ep->qp[new_qp(ep)].mine.mpr = mpr;
		free(told);
		told = shake(ep, line, 0, "null", 1);
		if (kit)
			as_target(sink, told);
		else
			as_server(told);
	}
	for (int p = 0; p < ep->n_paths; p++)
		close(ep->path[p].fd);
	for (int plane = 0; plane < ep->n_planes; plane++)
		close(ep->hears[plane].fd);
	free(ep), free(told), free(planes), free(sink);
	line_close(line);
}

int main(int argc, char **argv)
{
	struct options o = {.port = PORT, .pmtu = 1024, .size = 65536, .iters = 1000};
	signal(SIGPIPE, SIG_IGN);
	srand(now_ns());
	int at = 2, is_write = argc > 2 && !strcmp(argv[1], "write");
	if (is_write)
		o.host = argv[at++];
	else if (argc < 2 || strcmp(argv[1], "serve"))
		die("serve, or write HOST; then --planes A,B --secret HEX [--port N] [--pmtu N] [--once]"
			" [--size BYTES] [--iters N]");
	for (; at < argc; at += 2) {
		char *name = argv[at], *value = at + 1 < argc ? argv[at + 1] : "";
		if (!strcmp(name, "--once"))
			o.once = 1, at--;
		else if (!strcmp(name, "--planes"))
			o.planes = value;
		else if (!strcmp(name, "--secret"))
			o.secret = value;
		else if (!strcmp(name, "--port"))
			o.port = atoi(value);
		else if (!strcmp(name, "--pmtu"))
			o.pmtu = atoi(value);
		else if (!strcmp(name, "--size"))
			o.size = strtoull(value, NULL, 10);
		else if (!strcmp(name, "--iters"))
			o.iters = strtoull(value, NULL, 10);
		else
			die("%s: no such option", name);
	}
	if (!o.planes || !o.secret)
		die("--planes and --secret are needed");
	if (is_write) {
		ep = calloc(1, sizeof *ep);
		ep->pmtu = o.pmtu;
		ep->max_wimm = 128;
		open_planes(ep, o.planes, PLANES_MAX, PATHS_PER_PLANE);
		as_client(&o);
		return 0;
	}
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(o.port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (struct sockaddr *)&any, sizeof any) || listen(fd, 8))
		die("port %d is in use", o.port);
	socklen_t n = sizeof any;
	getsockname(fd, (struct sockaddr *)&any, &n);
	printf("listening on port %d\n", ntohs(any.sin_port));
	fflush(stdout);
	do
		serve_one(&o, accept(fd, NULL, NULL));
	while (!o.once);
	return 0;
}

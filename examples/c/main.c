/* An MRC endpoint in plain C, written from docs/ and conformance/mrc.h: it measures with `mrc perf
   write_bw`, as server or client, and is tested by the rules of `mrc conformance`.

       cc -O2 -I ../../conformance -o mrc_endpoint *.c
       export OPENMRC_SECRET=$(openssl rand -hex 32)     # the same at both ends
       ./mrc_endpoint serve --planes 127.0.1.1,127.0.1.2
       ./mrc_endpoint write HOST --planes 127.0.1.1,127.0.1.2 --size 1048576 --iters 1000 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
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
#define SECRET_MIN 16                  /* bytes: shorter ones can be guessed */
#define PROOF_S 2                      /* for a client to prove that it knows the secret */
#define KIT_BYTES (1 << 20)
#define READ_MAX 9000                  /* bytes of one `read` */

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
		draw(UINT32_MAX), memory};
}

/* Memory, without which nothing is offered to a peer. */
static uint8_t *memory_of(uint64_t bytes)
{
	uint8_t *memory = calloc(bytes ? bytes : 1, 1);
	if (!memory)
		die("no memory for %llu bytes", (unsigned long long)bytes);
	return memory;
}

/* A number in a message of the peer, or 0. */
static uint64_t number(const char *json, const char *key, uint64_t most)
{
	uint64_t n = 0;
	whole(member(json, key), 0, most, &n);
	return n;
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
			arrived = (char *)memory_of(n + 1);
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
	const char *why = read_region(item(member(told, "regions"), 0, NULL), CHANNEL_BYTES, &theirs);
	if (why)
		die("the peer's region: %s", why);
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

static void take_about(int qi, uint64_t bytes, char *about)
{
	const char *json = object_of(about), *why = read_attributes(ep,
		item(member(json, "qps"), 0, NULL), &ep->qp[qi].peer);
	if (!why)
		why = read_region(member(json, "sink"), bytes, &theirs);
	if (why)
		die("the peer's queue pair: %s", why);
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
	uint8_t *source = memory_of(o->size), *sink = memory_of(o->size);
	memset(source, FILL, o->size);
	region_add(room, sizeof room);
	new_qp(ep);
	line = line_to(o->host, o->port);
	if (!authenticate(line, o->secret, 0))
		die("the peer does not know the secret, or speaks another version");
	snprintf(text, sizeof text, "{\"test\": \"write_bw\", \"sizes\": [%llu], \"iterations\": %llu,"
		" \"duration_s\": 0.0, \"qps\": 1, \"tx_depth\": %d, \"bidirectional\": false}",
		(unsigned long long)o->size, (unsigned long long)o->iters, TX_DEPTH);
	char *told = shake(ep, line, 0, text, NULL);
	channel_start(told, 0);
	free(told);
	region_add(sink, o->size);
	struct region peer = theirs;
	int qi = new_qp(ep);
	channel_about(qi);
	take_about(qi, o->size, channel_receive());
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

static void as_server(const char *told, uint64_t size)
{
	uint8_t *sink = memory_of(size);
	channel_start(told, 1);
	region_add(sink, size);
	int qi = new_qp(ep);
	struct region peer = theirs;
	take_about(qi, 0, channel_receive());
	theirs = peer;
	channel_about(qi);
	for (;;) {
		char *next = channel_receive();
		uint64_t bytes = number(object_of(next), "size", size);
		free(next);
		if (!bytes)
			break;
		char *sent = channel_receive();
		uint64_t wrong = wrong_bytes(sink, bytes);
		printf("took %llu messages of %llu bytes, %llu bytes wrong\n",
			(unsigned long long)number(member(object_of(sent), "sent"), "iterations", UINT64_MAX),
			(unsigned long long)bytes,
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

/* One word of the kit; a value out of its range is refused. */
static const char *obey(const char *word, const uint8_t *source, const uint8_t *sink)
{
	uint64_t n, up, imm = 0;
	const char *value;
	if ((value = member(word, "post"))) {
		int has_imm = member(word, "imm") != NULL;
		if (!whole(value, 0, KIT_BYTES, &n)
		    || (has_imm && !whole(member(word, "imm"), 0, UINT32_MAX, &imm)))
			return "post: up to 1 MiB, and an imm of 32 bits, are accepted";
		post(ep, 0, source, n, theirs.va, theirs.rkey, has_imm, imm);
	} else if ((value = member(word, "receives"))) {
		if (!whole(value, 0, UINT32_MAX, &n))
			return "receives: a number of 32 bits is accepted";
		ep->qp[0].receives = n;
	} else if ((value = member(word, "port"))) {
		if (!whole(value, 0, ep->n_planes - 1, &n) || !whole(member(word, "up"), 0, 1, &up))
			return "port: one of this end, and true or false in up, are accepted";
		set_port(ep, n, up);
	} else if ((value = member(word, "read"))) {
		uint64_t at, bytes;
		char hex[2 * READ_MAX + 1] = "";
		if (!whole(value, 0, KIT_BYTES, &at) || !whole(member(word, "bytes"), 0, READ_MAX, &bytes)
		    || bytes > KIT_BYTES - at)
			return "read: bytes of the region, up to 9000 at a time, are accepted";
		for (uint64_t i = 0; i < bytes; i++)
			sprintf(hex + 2 * i, "%02x", sink[at + i]);
		say(line, "{\"read\": %llu, \"hex\": \"%s\"}", (unsigned long long)at, hex);
	} else {
		return "post, receives, port and read are understood";
	}
	return NULL;
}

static void as_target(const uint8_t *sink, const char *told, uint32_t receives)
{
	uint8_t *source = memory_of(KIT_BYTES);
	for (size_t k = 0; k < KIT_BYTES; k++)
		source[k] = (uint8_t)(k % 251);
	refuse_unless_well(line, read_region(item(member(told, "regions"), 0, NULL), 0, &theirs));
	ep->qp[0].receives = receives;
	say(line, "{\"rtt_us\": %llu, \"rto_us\": %llu}", (unsigned long long)ep->base_rtt / 1000,
		(unsigned long long)ep->rto / 1000);
	while (line->fd >= 0) {
		char *word = hear(ep, line, 0);
		if (word) {
			refuse_unless_well(line, obey(object_of(word), source, sink));
		} else {
			report();
			turn(ep, line->fd, now_ns() + 1000000);
		}
	}
	free(source);
}

/* --- options --------------------------------------------------------------------------------- */

static void slow(int number)
{
	(void)number;
	_exit(1);
}

static void serve_one(const struct options *o, int fd)
{
	struct purpose purpose;
	uint8_t *sink = memory_of(KIT_BYTES);
	line = line_of(fd);
	signal(SIGALRM, slow);
	alarm(PROOF_S);
	if (!authenticate(line, o->secret, 1))
		die("a client does not know the secret, or speaks another version");
	alarm(0);
	char *greeting = hear_object(NULL, line);
	refuse_unless_well(line, read_purpose(greeting, &purpose));
	ep = (struct endpoint *)memory_of(sizeof *ep);
	ep->pmtu = o->pmtu;
	open_planes(ep, o->planes, purpose.planes, purpose.evs);
	if (purpose.is_kit && ep->n_planes < (int)purpose.planes)
		refuse_unless_well(line, "planes: fewer are here");
	ep->linear_cnt = purpose.linear_cnt, ep->exp_cnt = purpose.exp_cnt;
	ep->max_wimm = purpose.max_wimm;
	region_add(purpose.is_kit ? sink : room, purpose.is_kit ? KIT_BYTES : sizeof room);
	ep->qp[new_qp(ep)].mine.mpr = purpose.mpr;
	shake(ep, line, 0, "null", greeting);
	if (purpose.is_kit)
		as_target(sink, greeting, purpose.receives);
	else
		as_server(greeting, purpose.size);
}

/* Each client has a process of its own: what is wrong with one ends that, and this one only. */
static int serve_apart(const struct options *o, int fd)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve_one(o, fd);
		exit(0);
	}
	close(fd);
	if (child < 0 || waitpid(child, &status, 0) < 0)
		die("no process for a client");
	if (WIFSIGNALED(status))
		fprintf(stderr, "mrc_endpoint: a client's process ended by signal %d\n", WTERMSIG(status));
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	struct options o = {.secret = getenv("OPENMRC_SECRET"), .port = PORT, .pmtu = 1024,
		.size = 65536, .iters = 1000};
	signal(SIGPIPE, SIG_IGN);
	int at = 2, is_write = argc > 2 && !strcmp(argv[1], "write");
	if (is_write)
		o.host = argv[at++];
	else if (argc < 2 || strcmp(argv[1], "serve"))
		die("serve, or write HOST; then --planes A,B [--port N] [--pmtu N] [--once]"
			" [--size BYTES] [--iters N]");
	for (; at < argc; at += 2) {
		char *name = argv[at], *value = at + 1 < argc ? argv[at + 1] : "";
		if (!strcmp(name, "--once"))
			o.once = 1, at--;
		else if (!strcmp(name, "--planes"))
			o.planes = value;
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
	if (o.pmtu < 1024 || o.pmtu > 8192 || o.pmtu & (o.pmtu - 1))
		die("--pmtu %u: 1024, 2048, 4096 or 8192 is accepted", o.pmtu);
	if (o.size < 1 || o.size > MESSAGE_MAX || o.iters < 1)
		die("--size takes 1 to %llu bytes, --iters 1 or more", MESSAGE_MAX);
	if (!o.planes || !o.secret || strlen(o.secret) < 2 * SECRET_MIN)
		die("--planes is needed, and in OPENMRC_SECRET the secret, %d bytes or more in hex",
			SECRET_MIN);
	if (is_write) {
		ep = (struct endpoint *)memory_of(sizeof *ep);
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
	for (int client;;) {
		if ((client = accept(fd, NULL, NULL)) < 0)
			continue;
		int status = serve_apart(&o, client);
		if (o.once)
			return status;
	}
}

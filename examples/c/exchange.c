/* The exchange (docs/verbs.md, "The exchange, byte by byte"): lines of JSON over TCP. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint.h"

#define VERSION 3
#define NONCE 32

void die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("mrc_endpoint: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	exit(1);
}

/* A random number that no peer can guess. */
uint32_t draw(uint32_t below)
{
	uint64_t drawn;
	if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
		die("no random numbers");
	return drawn % below;
}

/* --- SHA-256 (FIPS 180-4) and HMAC (RFC 2104) ----------------------------------------------- */

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* The constants are the first 32 bits behind the point of cube and square roots of primes. */
static uint32_t root_bits(int prime, int cube)
{
	long double low = 1, high = prime;
	for (int i = 0; i < 100; i++) {
		long double middle = (low + high) / 2;
		*(middle * middle * (cube ? middle : 1) > prime ? &high : &low) = middle;
	}
	return (uint32_t)((low - (int)low) * 4294967296.0L);
}

static void sha256(const uint8_t *data, size_t n, uint8_t out[32])
{
	static uint32_t k[64], first[8];
	for (int p = 2, i = 0; i < 64 && !k[63]; p++) {
		int prime = 1;
		for (int d = 2; d * d <= p; d++)
			prime &= p % d != 0;
		if (!prime)
			continue;
		if (i < 8)
			first[i] = root_bits(p, 0);
		k[i++] = root_bits(p, 1);
	}
	uint32_t h[8];
	memcpy(h, first, sizeof h);
	size_t total = (n + 8) / 64 * 64 + 64;
	for (size_t block = 0; block < total; block += 64) {
		uint32_t w[64] = {0}, s[8];
		for (size_t i = 0; i < 64; i++) {
			size_t at = block + i;
			uint8_t byte = at < n ? data[at] : at == n ? 0x80
				: at >= total - 8 ? (uint64_t)n * 8 >> 8 * (total - 1 - at) & 0xFF : 0;
			w[i / 4] |= (uint32_t)byte << (24 - i % 4 * 8);
		}
		for (int i = 16; i < 64; i++)
			w[i] = w[i - 16] + w[i - 7]
				+ (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3)
				+ (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
		memcpy(s, h, sizeof s);
		for (int i = 0; i < 64; i++) {
			uint32_t a = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25))
				+ ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
			uint32_t b = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22))
				+ ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
			memmove(s + 1, s, 7 * sizeof *s);
			s[4] += a;
			s[0] = a + b;
		}
		for (int i = 0; i < 8; i++)
			h[i] += s[i];
	}
	for (int i = 0; i < 32; i++)
		out[i] = h[i / 4] >> (24 - i % 4 * 8);
}

static void hmac(const uint8_t *key, size_t n_key, const char *text, char hex[65])
{
	uint8_t in[64 + 1024] = {0}, outer[64 + 32] = {0}, sum[32];
	if (n_key > 64)
		die("the secret: up to 64 bytes are accepted");
	memcpy(in, key, n_key);
	memcpy(outer, key, n_key);
	for (int i = 0; i < 64; i++)
		in[i] ^= 0x36, outer[i] ^= 0x5C;
	size_t n = strlen(text);
	memcpy(in + 64, text, n);
	sha256(in, 64 + n, outer + 64);
	sha256(outer, sizeof outer, sum);
	for (int i = 0; i < 32; i++)
		sprintf(hex + 2 * i, "%02x", sum[i]);
}

/* --- lines of JSON -------------------------------------------------------------------------- */

struct line *line_of(int fd)
{
	int on = 1;
	struct line *line = calloc(1, sizeof *line);
	if (!line)
		die("no memory");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	line->fd = fd;
	return line;
}

struct line *line_to(const char *host, int port)
{
	struct addrinfo want = {.ai_socktype = SOCK_STREAM}, *found;
	char service[8];
	snprintf(service, sizeof service, "%d", port);
	if (getaddrinfo(host, service, &want, &found))
		die("%s: no such host", host);
	for (int tries = 0; tries < 600; tries++) {
		int fd = socket(found->ai_family, SOCK_STREAM, 0);
		if (!connect(fd, found->ai_addr, found->ai_addrlen)) {
			freeaddrinfo(found);
			return line_of(fd);
		}
		close(fd);
		usleep(50000);
	}
	die("%s port %d: %s", host, port, strerror(errno));
}

void line_close(struct line *line)
{
	close(line->fd);
	free(line);
}

void say(struct line *line, const char *format, ...)
{
	static char text[1 << 16];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text - 1, format, args);
	va_end(args);
	n = n < (int)sizeof text - 1 ? n : (int)sizeof text - 2;
	text[n++] = '\n';
	for (int at = 0; at < n;) {
		ssize_t went = send(line->fd, text + at, n - at, MSG_NOSIGNAL);
		if (went <= 0)
			return;                   /* it is heard when the next line is waited for */
		at += went;
	}
}

static int readable(int fd, int ms)
{
	struct pollfd one = {fd, POLLIN, 0};
	return poll(&one, 1, ms) > 0;
}

/* The next line, while the endpoint, if there is one, goes on; NULL if there is none yet, or none
   any more. It is good until the next call. */
char *hear(struct endpoint *ep, struct line *line, int wait)
{
	memmove(line->text, line->text + line->given, line->n - line->given);
	line->n -= line->given;
	line->given = 0;
	for (;;) {
		char *end = memchr(line->text, '\n', line->n);
		if (end) {
			*end = 0;
			line->given = end + 1 - line->text;
			return line->text;
		}
		if (ep ? turn(ep, line->fd, now_ns() + (wait ? 1000000000ull : 0))
		       : readable(line->fd, wait ? 1000 : 0)) {
			ssize_t n = recv(line->fd, line->text + line->n, sizeof line->text - 1 - line->n,
				MSG_DONTWAIT);
			if (n == 0 || (n < 0 && errno != EAGAIN) || line->n + 1 == sizeof line->text) {
				close(line->fd);
				line->fd = -1;
				return NULL;
			}
			line->n += n > 0 ? n : 0;
		} else if (!wait) {
			return NULL;
		}
	}
}

size_t write_attributes(struct endpoint *ep, int qi, char *out, size_t room)
{
	const struct attributes *a = &ep->qp[qi].mine;
	size_t n = snprintf(out, room, "{\"nic\": 0, \"qp_num\": %u, \"psn\": %u, \"pmtu\": %u,"
		" \"mpr\": %u, \"max_wimm\": %u, \"send_depth\": %d, \"trim_nack\": false,"
		" \"dynamic_mpr\": false, \"svc_time\": false, \"planes\": [", a->qpn, a->psn, ep->pmtu,
		a->mpr, a->max_wimm, MESSAGES / 2);
	for (int plane = 0; plane < ep->n_planes; plane++) {
		const union address *own = &ep->own[plane];
		char address[64];
		inet_ntop(own->any.sa_family, own->any.sa_family == AF_INET ? (void *)&own->v4.sin_addr
			: (void *)&own->v6.sin6_addr, address, sizeof address);
		struct path *first = &ep->path[plane * ep->per_plane];
		n += snprintf(out + n, room - n, "%s{\"address\": \"%s\", \"port\": %u, \"sources\": [",
			plane ? ", " : "", address, ep->hears[plane].port);
		for (int k = 0; k < ep->per_plane; k++)
			n += snprintf(out + n, room - n, "%s%u", k ? ", " : "", first[k].port);
		n += snprintf(out + n, room - n, "]}");
	}
	return n + snprintf(out + n, room - n, "]}");
}

/* --- the exchange --------------------------------------------------------------------------- */

static const char *const ROLE[] = {"client", "server"};

/* Both prove that they know the secret, by HMAC-SHA256 of "ROLE PEERS_NONCE OWN_NONCE": the client
   first, because guesses can be tested with a proof. */
int authenticate(struct line *line, const char *secret_hex, int as_server)
{
	uint8_t random[NONCE], secret[64];
	char mine[2 * NONCE + 1], theirs[256], proof[65], told[256], text[1024];
	uint64_t version;
	size_t n = strlen(secret_hex) / 2;
	for (size_t i = 0; i < n && i < sizeof secret; i++)
		sscanf(secret_hex + 2 * i, "%2hhx", &secret[i]);
	if (getrandom(random, sizeof random, 0) != sizeof random)
		die("no random numbers");
	for (int i = 0; i < NONCE; i++)
		sprintf(mine + 2 * i, "%02x", random[i]);
	say(line, "{\"openmrc\": %d, \"nonce\": \"%s\"}", VERSION, mine);
	char *hello = hear(NULL, line, 1);
	const char *told_of = hello ? object_of(hello) : NULL;
	if (!whole(member(told_of, "openmrc"), VERSION, VERSION, &version)
	    || !text_of(member(told_of, "nonce"), theirs, sizeof theirs) || !strcmp(mine, theirs))
		return 0;
	for (int turn = 0; turn < 2; turn++) {
		int is_mine = turn == as_server;
		snprintf(text, sizeof text, "%s %s %s", ROLE[turn], is_mine ? theirs : mine,
			is_mine ? mine : theirs);
		hmac(secret, n, text, proof);
		if (is_mine) {
			say(line, "{\"proof\": \"%s\"}", proof);
			continue;
		}
		char *answer = hear(NULL, line, 1);
		if (!answer || !text_of(member(object_of(answer), "proof"), told, sizeof told))
			return 0;
		if (strcmp(proof, told)) {
			say(line, "{\"refused\": \"the secrets of both ends differ\"}");
			return 0;
		}
	}
	return 1;
}

/* Tell the peer what is wrong with what it sent, and end. */
void refuse_unless_well(struct line *line, const char *why)
{
	if (!why)
		return;
	say(line, "{\"refused\": \"%s\"}", why);
	die("what the peer sent is refused: %s", why);
}

/* The next line, which is an object and refuses nothing; the caller frees it. */
char *hear_object(struct endpoint *ep, struct line *line)
{
	char why[160];
	char *heard = hear(ep, line, 1);
	if (!heard)
		die("the peer closed the connection");
	refuse_unless_well(line, object_of(heard) ? NULL : "a line is no object of JSON");
	if (member(object_of(heard), "refused")) {
		printable(member(object_of(heard), "refused"), why, sizeof why);
		die("the peer refuses: %s", why);
	}
	return strdup(object_of(heard));
}

/* Attributes, connection, and both round trips, the client's first. `greeting` is what a server has
   heard from its client, else NULL. Returns what the peer said, which is freed by the caller. */
char *shake(struct endpoint *ep, struct line *line, int qi, const char *extra, char *greeting)
{
	char own[8192], regions[512] = "", *told = greeting;
	size_t n = 0;
	if (told)
		refuse_unless_well(line, read_attributes(ep, member(told, "qp"), &ep->qp[qi].peer));
	for (int i = 0; i < ep->n_regions; i++)
		n += snprintf(regions + n, sizeof regions - n,
			"%s{\"addr\": %llu, \"length\": %llu, \"rkey\": %u}", i ? ", " : "",
			(unsigned long long)ep->region[i].va, (unsigned long long)ep->region[i].length,
			ep->region[i].rkey);
	write_attributes(ep, qi, own, sizeof own);
	say(line, "{\"qp\": %s, \"regions\": [%s], \"extra\": %s}", own, regions, extra);
	if (!told) {
		told = hear_object(ep, line);
		refuse_unless_well(line, read_attributes(ep, member(told, "qp"), &ep->qp[qi].peer));
	}
	connect_qp(ep, qi);
	say(line, "{\"connected\": true}");
	free(hear_object(ep, line));
	for (int turn = 0; turn < 2; turn++)
		if (turn == (greeting != NULL)) {
			measure(ep);
			say(line, "{\"measured\": true}");
		} else {
			free(hear_object(ep, line));
		}
	return told;
}

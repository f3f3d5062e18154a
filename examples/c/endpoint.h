/* An MRC endpoint in plain C over UDP, with one peer: what its files share. */
#ifndef ENDPOINT_H
#define ENDPOINT_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#define PLANES_MAX 8
#define PATHS_PER_PLANE 4
#define PATHS_MAX (PLANES_MAX * PATHS_PER_PLANE)
#define QPS_MAX 64
#define WINDOW 2048            /* packets of a QP that may be open: its MPR */
#define MESSAGES 256           /* requests of a QP that may be open */
#define EVENTS_MAX 4096
#define MESSAGE_MAX (1ull << 30)     /* bytes, of `mrc perf` */

union address { struct sockaddr any; struct sockaddr_in v4; struct sockaddr_in6 v6; };

/* A path is a source port, so a socket that only sends; one more of each plane hears. */
struct path {
	int fd, plane;
	uint16_t port;
	int bad, skip;         /* ASSUMED_BAD, SKIP; else GOOD */
	uint64_t probe_at, spacing;
};

struct attributes {
	uint32_t qpn, psn, pmtu, mpr, max_wimm;
	int trim_nack, n_planes;
	union address plane[PLANES_MAX];
};

struct region { uint64_t va; uint64_t length; uint32_t rkey; uint8_t *memory; };

enum { IDLE, OUT, LOST, HERE };        /* of a packet sent */

struct sent {
	uint64_t at;
	uint32_t message;
	uint16_t stamp, lost_stamp;
	uint8_t state, copies, path, lost_path;  /* of the copy that was judged lost */
};

struct request {
	const uint8_t *data;
	uint64_t length, va;
	int64_t first;         /* sequence of its first packet */
	uint32_t rkey, imm, rqmsn;
	int has_imm;
};

struct arriving {
	uint64_t origin, length;
	int64_t first_min, first_max;
	uint32_t rkey, total, here, imm;
	int has_imm, wimm;
};

/* Sequences count from 0; a PSN is the first PSN and the sequence, modulo 2^24. */
struct qp {
	int used, failed;
	const char *error;
	struct attributes mine, peer;
	/* the requester */
	struct sent sent[WINDOW];
	struct request request[MESSAGES];
	int64_t next, una, fresh;      /* next new sequence; first not received; newest not cut yet */
	int64_t posted, done;          /* messages */
	uint32_t rqmsn, inflight, wimm_open;
	double cwnd;                   /* packets */
	uint64_t heard_at, sent_at, cut_at, latest, epoch_at, probe_at, rtt_high;
	uint64_t sent_bytes, charged_at;
	int epochs, questions;
	/* the responder */
	uint8_t here[WINDOW];
	struct arriving arriving[MESSAGES];
	int64_t cack, high, asked, hole;
	int64_t rx_msn, rx_done;       /* messages complete in order, and their last sequence */
	uint64_t rx_bytes, credit, refused_at;
	uint32_t receives, received, wimm_held;
	int turn, refused;
};

/* Why a peer has come: the settings of the kit, or the largest message of a measurement. */
struct purpose {
	int is_kit;
	uint64_t size;
	uint32_t planes, evs, mpr, linear_cnt, exp_cnt, max_wimm, receives;
};

enum event_kind { COMPLETION, RECEIVE, FAILED };
struct event { enum event_kind kind; int qp; int64_t id; uint32_t imm; const char *why; };

struct endpoint {
	int n_planes, per_plane, n_paths;
	union address own[PLANES_MAX];
	struct path hears[PLANES_MAX], path[PATHS_MAX];
	struct qp qp[QPS_MAX];
	struct region region[2];
	int n_regions;
	uint64_t base_rtt, rto, heard[PLANES_MAX];
	uint32_t pmtu, linear_cnt, exp_cnt, max_wimm;
	uint32_t up, remote_up, request_id, remote_id;
	int status_open;
	uint64_t status_at, status_spacing;
	int plane_turn, path_turn[PLANES_MAX], control_turn, control_path_turn[PLANES_MAX];
	uint16_t probe_id;
	struct { int path, qp; uint64_t at; } probe[256];
	uint64_t echo_sent[32], echo_back[32];
	struct event event[EVENTS_MAX];
	unsigned n_events, taken;
};

/* transport.c */
uint64_t now_ns(void);
void open_planes(struct endpoint *ep, char *names, int n_planes, int per_plane);
void forget_peer(struct endpoint *ep);
int new_qp(struct endpoint *ep);
void connect_qp(struct endpoint *ep, int qi);
void measure(struct endpoint *ep);
int post(struct endpoint *ep, int qi, const uint8_t *data, uint64_t length, uint64_t va,
	uint32_t rkey, int has_imm, uint32_t imm);
void set_port(struct endpoint *ep, int plane, int up);
struct event *next_event(struct endpoint *ep);
int turn(struct endpoint *ep, int other_fd, uint64_t until);

/* json.c */
const char *object_of(const char *line);
const char *member(const char *object, const char *key);
const char *item(const char *within, int i, const char **name);
int whole(const char *value, uint64_t least, uint64_t most, uint64_t *out);
int text_of(const char *value, char *out, size_t room);
void printable(const char *value, char *out, size_t room);

/* greeting.c */
const char *read_purpose(const char *greeting, struct purpose *out);
const char *read_attributes(const struct endpoint *ep, const char *json, struct attributes *out);
const char *read_region(const char *json, uint64_t bytes, struct region *out);

/* exchange.c */
struct line { int fd; char text[1 << 17]; size_t n, given; };
struct line *line_to(const char *host, int port);
struct line *line_of(int fd);
void line_close(struct line *line);
void say(struct line *line, const char *format, ...);
char *hear(struct endpoint *ep, struct line *line, int wait);
int authenticate(struct line *line, const char *secret_hex, int as_server);
char *hear_object(struct endpoint *ep, struct line *line);
char *shake(struct endpoint *ep, struct line *line, int qi, const char *extra, char *greeting);
void refuse_unless_well(struct line *line, const char *why);
uint32_t draw(uint32_t below);
size_t write_attributes(struct endpoint *ep, int qi, char *out, size_t room);
void die(const char *format, ...) __attribute__((noreturn));

#endif

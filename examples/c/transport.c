/* Requester and responder: docs/protocol.md in C, with a window and a loss rule of their own. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "endpoint.h"
#include "mrc.h"

#define US 1000ull
#define MS (1000 * US)
#define NOMINAL_OVERHEAD 88
#define SACK_BYTES 16384
#define RTO_MIN (16777 * US)   /* 1.024 us x 2^14 */
#define SOURCE_BASE 49152
#define ROOM 9000
#define HEADERS 48             /* before a datagram, for those of IP and UDP that the iCRC covers */
#define REFUSED_MAX 3
#define ECN_BITS 3

struct packet {                /* what came: its headers behind UDP, and how it came */
	const uint8_t *bth, *ext[4], *payload;
	size_t length;
	unsigned opcode;
	uint32_t ev;
	int plane, marked;
};

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint16_t stamp(uint64_t now) { return now / 128; }

static void tell(struct endpoint *ep, enum event_kind kind, int qi, int64_t id, uint32_t imm)
{
	if (ep->n_events - ep->taken < EVENTS_MAX)
		ep->event[ep->n_events++ % EVENTS_MAX] =
			(struct event){kind, qi, id, imm, ep->qp[qi].error};
}

struct event *next_event(struct endpoint *ep)
{
	return ep->taken == ep->n_events ? NULL : &ep->event[ep->taken++ % EVENTS_MAX];
}

static void fail(struct endpoint *ep, int qi, const char *why)
{
	struct qp *q = &ep->qp[qi];
	if (q->failed)
		return;
	q->failed = 1;
	q->error = why;
	tell(ep, FAILED, qi, 0, 0);
}

/* --- the wire ------------------------------------------------------------------------------ */

static uint32_t table[4][256];

static void make_table(void)
{
	for (unsigned i = 0; i < 256; i++) {
		uint32_t sum = i;
		for (int k = 0; k < 8; k++)
			sum = sum & 1 ? sum >> 1 ^ 0xEDB88320 : sum >> 1;
		table[0][i] = sum;
	}
	for (unsigned i = 0; i < 256; i++)
		for (int k = 1; k < 4; k++)
			table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 0xFF];
}

static uint32_t crc(uint32_t sum, const uint8_t *at, size_t n)
{
	for (; n >= 4; n -= 4, at += 4) {
		sum ^= at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
		sum = table[3][sum & 0xFF] ^ table[2][sum >> 8 & 0xFF] ^ table[1][sum >> 16 & 0xFF]
			^ table[0][sum >> 24];
	}
	while (n--)
		sum = sum >> 8 ^ table[0][(sum ^ *at++) & 0xFF];
	return sum;
}

/* Over the `n` bytes from the BTH to the pad, with the headers before them as they travel: the destination port
   counts as 4791 and IPv4's identification as 0, and what changes on the way is ones. */
static uint32_t invariant_crc(const union address *src, uint16_t src_port, const union address *dst,
	const uint8_t *bth, size_t n)
{
	uint8_t head[8 + HEADERS + 12], *ip = head + 8, *udp;
	memset(head, 0, sizeof head);
	memset(head, 0xFF, 8);
	if (src->any.sa_family == AF_INET) {
		mrc_put(ip, MRC_IPV4_VERSION, 4);
		mrc_put(ip, MRC_IPV4_IHL, 5);
		mrc_put(ip, MRC_IPV4_TOTAL_LENGTH, 20 + 8 + n + MRC_ICRC.bytes);
		mrc_put(ip, MRC_IPV4_IP_FLAGS, 2);
		mrc_put(ip, MRC_IPV4_PROTOCOL, IPPROTO_UDP);
		ip[1] = ip[8] = ip[10] = ip[11] = 0xFF;
		memcpy(ip + 12, &src->v4.sin_addr, 4);
		memcpy(ip + 16, &dst->v4.sin_addr, 4);
		udp = ip + MRC_IPV4.bytes;
	} else {
		ip[0] = 0x6F;
		ip[1] = ip[2] = ip[3] = 0xFF;
		mrc_put(ip, MRC_IPV6_PAYLOAD_LENGTH, 8 + n + MRC_ICRC.bytes);
		mrc_put(ip, MRC_IPV6_NEXT_HEADER, IPPROTO_UDP);
		ip[7] = 0xFF;
		memcpy(ip + 8, &src->v6.sin6_addr, 16);
		memcpy(ip + 24, &dst->v6.sin6_addr, 16);
		udp = ip + MRC_IPV6.bytes;
	}
	mrc_put(udp, MRC_UDP_SRC_PORT, src_port);
	mrc_put(udp, MRC_UDP_DST_PORT, MRC_UDP_PORT);
	mrc_put(udp, MRC_UDP_LENGTH, 8 + n + MRC_ICRC.bytes);
	mrc_put(udp, MRC_UDP_CHECKSUM, 0xFFFF);
	uint8_t *first = udp + MRC_UDP.bytes;
	memcpy(first, bth, 12);
	first[4] = 0xFF;
	uint32_t sum = crc(0xFFFFFFFF, head, first + 12 - head);
	return ~crc(sum, bth + 12, n - 12);
}

/* Headers of a packet that is being made; `end` is where the next one goes. */
struct out { uint8_t bytes[ROOM]; size_t end; };

static uint8_t *begin(struct out *out, unsigned opcode, uint32_t qpn, uint32_t psn)
{
	memset(out->bytes, 0, 128);
	mrc_put(out->bytes, MRC_BTH_OPCODE, opcode);
	mrc_put(out->bytes, MRC_BTH_PKEY, 0xFFFF);
	mrc_put(out->bytes, MRC_BTH_DEST_QPN, qpn);
	mrc_put(out->bytes, MRC_BTH_PSN, psn & 0xFFFFFF);
	out->end = MRC_BTH.bytes;
	return out->bytes;
}

static uint8_t *extend(struct out *out, const struct mrc_header *header)
{
	uint8_t *at = out->bytes + out->end;
	out->end += header->bytes;
	return at;
}

static void send_out(struct endpoint *ep, struct out *out, int path, unsigned dscp, unsigned ecn)
{
	if (path < 0)                         /* every plane is down */
		return;
	struct path *way = &ep->path[path];
	const union address *to = &ep->qp[0].peer.plane[way->plane];
	int v4 = to->any.sa_family == AF_INET, class = dscp << 2 | ecn;
	uint32_t sum = invariant_crc(&ep->own[way->plane], way->port, to, out->bytes, out->end);
	for (int i = 0; i < 4; i++)
		out->bytes[out->end + i] = sum >> 8 * i;
	char control[CMSG_SPACE(sizeof class)] = {0};
	struct iovec io = {out->bytes, out->end + 4};
	struct msghdr m = {(void *)to, v4 ? sizeof to->v4 : sizeof to->v6, &io, 1, control,
		sizeof control, 0};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
	c->cmsg_type = v4 ? IP_TOS : IPV6_TCLASS;
	c->cmsg_len = CMSG_LEN(sizeof class);
	memcpy(CMSG_DATA(c), &class, sizeof class);
	sendmsg(way->fd, &m, MSG_DONTWAIT);    /* what the kernel does not take is lost */
}

/* --- paths --------------------------------------------------------------------------------- */

static int is_usable(const struct endpoint *ep, int plane)
{
	return ep->up >> plane & ep->remote_up >> plane & 1;
}

/* The next path of a plane: one that is marked is passed over once, one that is bad always. */
static int path_of_plane(struct endpoint *ep, int plane)
{
	int first = plane * ep->per_plane, n = ep->per_plane;
	for (int k = 0; k < 2 * n; k++) {
		int p = first + ep->path_turn[plane]++ % n;
		if (ep->path[p].bad)
			continue;
		if (!ep->path[p].skip)
			return p;
		ep->path[p].skip = 0;
	}
	return -1;
}

/* Data: planes in turn, one other than `not_plane` if there is one. -1 if no plane is usable. */
static int next_path(struct endpoint *ep, int not_plane)
{
	for (int pass = 0; pass < 2; pass++)
		for (int k = 0; k < ep->n_planes; k++) {
			int plane = ep->plane_turn++ % ep->n_planes, path;
			if (!is_usable(ep, plane) || (pass == 0 && plane == not_plane))
				continue;
			if ((path = path_of_plane(ep, plane)) >= 0)
				return path;
		}
	for (int k = 0; k < ep->n_paths; k++) {   /* all are bad: one must be tried */
		int path = ep->plane_turn++ % ep->n_paths;
		if (is_usable(ep, ep->path[path].plane))
			return path;
	}
	return -1;
}

/* What is not data: planes in turn, without those on which nothing has come for long while others speak, and on
   each the next path that is not bad. It takes no turn from data, and none that a mark cost. */
static int control_path(struct endpoint *ep, int plane)
{
	uint64_t newest = 0;
	for (int k = 0; k < ep->n_planes; k++)
		newest = ep->heard[k] > newest ? ep->heard[k] : newest;
	for (int k = 0; plane < 0 && k < 2 * ep->n_planes; k++) {
		int turn = ep->control_turn++ % ep->n_planes;
		int is_silent = ep->heard[turn] + 2 * ep->rto < newest;
		if (is_usable(ep, turn) && !(is_silent && k < ep->n_planes))
			plane = turn;
	}
	if (plane < 0)
		return -1;
	int first = plane * ep->per_plane, path = first;
	for (int k = 0; k < ep->per_plane; k++) {
		path = first + ep->control_path_turn[plane]++ % ep->per_plane;
		if (!ep->path[path].bad)
			break;
	}
	return path;
}

static int path_of_port(const struct endpoint *ep, uint32_t ev)
{
	for (int p = 0; p < ep->n_paths; p++)
		if (ep->path[p].port == ev)
			return p;
	return -1;
}

static void leave(struct endpoint *ep, int path, uint64_t now)
{
	struct path *p = &ep->path[path];
	if (p->bad || ep->n_paths == 1 || !is_usable(ep, p->plane))
		return;                       /* the losses of a port that is down are the port's */
	p->bad = 1;
	p->spacing = ep->base_rtt;
	p->probe_at = now + p->spacing;
}

/* --- what is sent -------------------------------------------------------------------------- */

static void send_probe(struct endpoint *ep, int qi, int path, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	struct out out;
	if (path < 0)
		return;
	uint16_t id = ++ep->probe_id;
	begin(&out, MRC_OP_RELIABILITY_PROBE_REQ, q->peer.qpn, 0);
	uint8_t *peth = extend(&out, &MRC_PETH);
	mrc_put(peth, MRC_PETH_PROBE_ID, id);
	mrc_put(peth, MRC_PETH_SPDCID, q->mine.qpn & 0xFFFF);
	mrc_put(peth, MRC_PETH_DPDCID, q->peer.qpn & 0xFFFF);
	mrc_put(peth, MRC_PETH_TX_TIMESTAMP, stamp(now));
	mrc_put(peth, MRC_PETH_FTYPE, MRC_FTYPE_TIMESTAMP);
	ep->probe[id % 256].path = path;
	ep->probe[id % 256].qp = qi;
	ep->probe[id % 256].at = now;
	send_out(ep, &out, path, MRC_DSCP_NO_TRIM, MRC_ECN_ECT_0);
}

static void send_endpoint(struct endpoint *ep, unsigned opcode, unsigned op, uint32_t id, int path,
	uint64_t now)
{
	struct out out;
	begin(&out, opcode, MRC_ENDPOINT_QPN, id & 0xFFFF);
	if (opcode == MRC_OP_ENDPOINT_REQUEST) {
		uint8_t *erth = extend(&out, &MRC_ERTH);
		mrc_put(erth, MRC_ERTH_OP, op);
		mrc_put(erth, MRC_ERTH_PORT_STATUS_MASK, op == MRC_ENDPOINT_EV_PROBE ? 0 : ep->up);
		mrc_put(erth, MRC_ERTH_TX_TIMESTAMP, stamp(now));
		mrc_put(erth, MRC_ERTH_FTYPE, MRC_FTYPE_TIMESTAMP);
	} else {
		uint8_t *eeth = extend(&out, &MRC_EETH);
		mrc_put(eeth, MRC_EETH_OP, op);
		mrc_put(eeth, MRC_EETH_TX_TIMESTAMP, stamp(now));
	}
	send_out(ep, &out, path, MRC_DSCP_CONTROL, MRC_ECN_NOT_ECT);
}

static struct request *request_of(struct qp *q, uint32_t message)
{
	return &q->request[message % MESSAGES];
}

static uint32_t packets_of(uint64_t length, uint32_t pmtu)
{
	return length ? (length + pmtu - 1) / pmtu : 1;
}

static void send_data(struct endpoint *ep, int qi, int64_t seq, int asks, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	struct sent *s = &q->sent[seq % WINDOW];
	struct request *r = request_of(q, s->message);
	uint32_t n = packets_of(r->length, ep->pmtu), part = seq - r->first;
	uint64_t at = (uint64_t)part * ep->pmtu;
	size_t bytes = r->length - at < ep->pmtu ? r->length - at : ep->pmtu;
	int again = s->copies > 0, last = part + 1 == n;
	int path = next_path(ep, again ? ep->path[s->path].plane : -1);
	if (path < 0) {        /* every plane is down */
		s->state = LOST;
		return;
	}
	unsigned opcode = n == 1 ? MRC_OP_RDMA_WRITE_ONLY : last ? MRC_OP_RDMA_WRITE_LAST
		: part ? MRC_OP_RDMA_WRITE_MIDDLE : MRC_OP_RDMA_WRITE_FIRST;
	if (last && r->has_imm)
		opcode = n == 1 ? MRC_OP_RDMA_WRITE_ONLY_IMM : MRC_OP_RDMA_WRITE_LAST_IMM;
	struct out out;
	uint8_t *bth = begin(&out, opcode, q->peer.qpn, q->mine.psn + seq);
	mrc_put(bth, MRC_BTH_PAD, -bytes & 3);
	mrc_put(bth, MRC_BTH_A, again || last || asks);
	mrc_put(bth, MRC_BTH_RTX, again);
	mrc_put(bth, MRC_BTH_TS, 1);
	uint8_t *meth = extend(&out, &MRC_METH);
	mrc_put(meth, MRC_METH_RQMSN, r->rqmsn & 0xFFFF);
	mrc_put(meth, MRC_METH_MSN, s->message & 0xFFFF);
	uint8_t *tseth = extend(&out, &MRC_TSETH);
	mrc_put(tseth, MRC_TSETH_TX_TIMESTAMP, stamp(now));
	mrc_put(tseth, MRC_TSETH_FTYPE, MRC_FTYPE_TIMESTAMP);
	uint8_t *reth = extend(&out, &MRC_RETH);
	mrc_put(reth, MRC_RETH_VA, r->va + at);
	mrc_put(reth, MRC_RETH_RKEY, r->rkey);
	mrc_put(reth, MRC_RETH_DMA_LENGTH, r->length);
	if (last && r->has_imm)
		mrc_put(extend(&out, &MRC_IMMDT), MRC_IMMDT_IMM, r->imm);
	memcpy(out.bytes + out.end, r->data + at, bytes);
	memset(out.bytes + out.end + bytes, 0, -bytes & 3);
	out.end += (bytes + 3) / 4 * 4;
	unsigned dscp = again ? MRC_DSCP_TRIMMABLE_RETX : MRC_DSCP_TRIMMABLE;
	send_out(ep, &out, path, q->peer.trim_nack ? dscp : MRC_DSCP_NO_TRIM, MRC_ECN_ECT_0);
	s->at = q->sent_at = now;
	s->stamp = stamp(now);
	s->path = path;
	s->copies++;
	s->state = OUT;
	q->inflight++;
}

int post(struct endpoint *ep, int qi, const uint8_t *data, uint64_t length, uint64_t va,
	uint32_t rkey, int has_imm, uint32_t imm)
{
	struct qp *q = &ep->qp[qi];
	if (q->failed || q->posted - q->done >= MESSAGES / 2)
		return 0;
	*request_of(q, q->posted++) = (struct request){data, length, va, -1, rkey, imm,
		has_imm ? q->rqmsn++ : 0, has_imm};
	return 1;
}

/* Send what may leave: what was lost first, then new packets while window and MPR allow. */
static void pump(struct endpoint *ep, int qi, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	for (int64_t seq = q->una; seq < q->next && q->inflight < q->cwnd; seq++)
		if (q->sent[seq % WINDOW].state == LOST)
			send_data(ep, qi, seq, 1, now_ns());
	uint32_t mpr = q->peer.mpr < WINDOW ? q->peer.mpr : WINDOW;
	while (q->inflight < q->cwnd && q->next < q->una + mpr && q->fresh < q->posted) {
		struct request *r = request_of(q, q->fresh);
		if (r->first < 0) {
			if (r->has_imm && q->wimm_open >= q->peer.max_wimm)
				break;
			q->wimm_open += r->has_imm;
			r->first = q->next;
		}
		if (q->una == q->next) {
			q->epoch_at = q->heard_at = now;
			q->epochs = 0;
		}
		struct sent *s = &q->sent[q->next % WINDOW];
		*s = (struct sent){.message = q->fresh};
		if (q->next + 1 == r->first + packets_of(r->length, ep->pmtu))
			q->fresh++;
		q->next++;
		q->sent_bytes += ep->pmtu + NOMINAL_OVERHEAD;
		int closes = q->inflight + 1 >= q->cwnd || q->next == q->una + mpr;
		send_data(ep, qi, q->next - 1, closes, now_ns());
	}
}

/* --- what a requester hears ---------------------------------------------------------------- */

static uint64_t epoch_length(const struct endpoint *ep, int epochs)
{
	int doublings = epochs + 1 - (int)ep->linear_cnt;
	return ep->rto << (doublings < 0 ? 0 : doublings > 10 ? 10 : doublings);
}

/* An epoch without progress: the last one ends the queue pair (row 9). */
static void charge(struct endpoint *ep, int qi, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	q->epoch_at = q->charged_at = now;
	if (++q->epochs >= (int)(ep->linear_cnt + ep->exp_cnt) && ep->exp_cnt < 25)
		fail(ep, qi, "retry-counter-exceeded");
}

static void cut(struct endpoint *ep, struct qp *q, uint64_t now)
{
	if (now - q->cut_at < ep->base_rtt)
		return;
	q->cut_at = now;
	q->cwnd = q->cwnd / 2 < 4 ? 4 : q->cwnd / 2;
}

static void is_here(struct qp *q, int64_t seq, uint64_t now)
{
	struct sent *s = &q->sent[seq % WINDOW];
	if (s->state == HERE || s->state == IDLE)
		return;
	if (s->state == OUT)
		q->inflight--;
	if (s->copies == 1 && s->at > q->latest)
		q->latest = s->at;
	if (s->copies == 1 && now - s->at > q->rtt_high)
		q->rtt_high = now - s->at;
	s->state = HERE;
	q->cwnd += 1 / q->cwnd;
	if (q->cwnd > WINDOW)
		q->cwnd = WINDOW;
}

static void is_lost(struct endpoint *ep, int qi, int64_t seq, int path_too, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	struct sent *s = &q->sent[seq % WINDOW];
	s->state = LOST;
	s->lost_path = s->path, s->lost_stamp = s->stamp;
	q->inflight--;
	cut(ep, q, now);
	if (path_too)
		leave(ep, s->path, now);
}

/* Lost is what is overdue while anything sent later is known received (row 7). */
static void judge(struct endpoint *ep, int qi, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	uint64_t patience = (q->rtt_high > ep->base_rtt ? q->rtt_high : ep->base_rtt) * 5 / 4;
	for (int64_t seq = q->una; seq < q->next; seq++) {
		struct sent *s = &q->sent[seq % WINDOW];
		if (s->state == OUT && s->at < q->latest && now - s->at > patience)
			is_lost(ep, qi, seq, 1, now);
	}
}

static void completed(struct endpoint *ep, int qi, int64_t up_to)
{
	struct qp *q = &ep->qp[qi];
	while (q->done <= up_to && q->done < q->fresh) {
		struct request *r = request_of(q, q->done);
		int64_t end = r->first + packets_of(r->length, ep->pmtu);
		for (int64_t seq = q->una; seq < end; seq++)   /* an ACK says so of all its packets */
			is_here(q, seq, now_ns());
		if (q->una < end)
			q->una = end;
		q->wimm_open -= r->has_imm;
		tell(ep, COMPLETION, qi, q->done++, 0);
	}
}

static int64_t unwrap(uint32_t psn, uint32_t first, int64_t near)
{
	int32_t ahead = (psn - first - (uint32_t)near) & 0xFFFFFF;
	return near + (ahead >= 0x800000 ? ahead - 0x1000000 : ahead);
}

static void hear_of_path(struct endpoint *ep, int path, unsigned m, uint64_t now)
{
	if (path < 0)
		return;
	if (m == MRC_M_SKIP_ONCE)
		ep->path[path].skip = 1;
	else if (m == MRC_M_ALWAYS_SKIP)
		leave(ep, path, now);
}

static void on_sack(struct endpoint *ep, int qi, const struct packet *p, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	const uint8_t *seth = p->ext[0];
	int64_t cack = unwrap(mrc_get(seth, MRC_SETH_CACK_PSN), q->mine.psn, q->una);
	int16_t offset = mrc_get(seth, MRC_SETH_SACK_OFFSET);
	uint64_t map = mrc_get(seth, MRC_SETH_SACK_BITMAP);
	int16_t trigger = mrc_get(seth, MRC_SETH_ACK_PSN_OFFSET);
	int path = path_of_port(ep, mrc_get(seth, MRC_SETH_ENTROPY)), moved = 0;
	uint64_t here = mrc_get(p->ext[1], MRC_CC_STATE_RCVD_BYTES) * 256ull;
	if (cack >= q->next || cack < -1 || here >= q->sent_bytes + 256)
		return;                       /* it speaks of what was never sent */
	for (int i = 0; i < 64; i++)
		if (map >> i & 1 && cack + offset + i >= q->next)
			return;
	q->heard_at = now;
	q->questions = 0;
	hear_of_path(ep, path, mrc_get(seth, MRC_SETH_M), now);
	for (int64_t seq = q->una; seq <= cack; seq++)
		is_here(q, seq, now);
	for (int i = 0; i < 64; i++)
		if (map >> i & 1 && cack + offset + i >= q->una)
			is_here(q, cack + offset + i, now);
	while (q->una < q->next && q->sent[q->una % WINDOW].state == HERE)
		q->una++, moved = 1;
	if (moved) {
		q->epochs = 0;
		q->epoch_at = now;
	}
	if (mrc_get(seth, MRC_SETH_PR)) {
		unsigned id = (uint16_t)trigger % 256;
		if (ep->probe[id].at && ep->probe[id].qp == qi) {
			struct path *way = &ep->path[ep->probe[id].path];
			way->bad = 0;
			if (ep->probe[id].at > q->latest)
				q->latest = ep->probe[id].at;
			ep->probe[id].at = 0;
		}
	} else {
		const struct sent *s = &q->sent[(uint64_t)(cack + trigger) % WINDOW];
		if (path >= 0 && s->copies > 1 && s->lost_path == path
		    && s->lost_stamp == mrc_get(p->ext[1], MRC_CC_STATE_TX_TIMESTAMP))
			ep->path[path].bad = 0;       /* what was judged lost on it was late (row 7) */
		if (path >= 0 && mrc_get(seth, MRC_SETH_M) == MRC_M_SKIP_ONCE)
			cut(ep, q, now);
	}
	judge(ep, qi, now);
}

static void on_nack(struct endpoint *ep, int qi, const struct packet *p, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	const uint8_t *neth = p->ext[0];
	int64_t seq = unwrap(mrc_get(neth, MRC_NETH_NACK_PSN), q->mine.psn, q->una);
	struct sent *s = &q->sent[(uint64_t)seq % WINDOW];
	unsigned reason = mrc_get(neth, MRC_NETH_NACK_REASON);
	if (seq < q->una || seq >= q->next || s->state != OUT
	    || s->stamp != mrc_get(neth, MRC_NETH_TX_TIMESTAMP)
	    || ep->path[s->path].port != mrc_get(neth, MRC_NETH_ENTROPY))
		return;                       /* not sent, here already, or of an earlier copy */
	q->heard_at = now;
	switch (reason) {
	case MRC_NACK_UNEXP_EVENT:
		fail(ep, qi, "remote-operation-error");
		return;
	case MRC_NACK_TRIMMED:
		ep->path[s->path].skip = 1;
		/* fall through */
	case MRC_NACK_TRIMMED_LASTHOP:
		break;
	default:                              /* refused, for whatever reason: one more try (row 9) */
		if (now - q->charged_at >= epoch_length(ep, q->epochs))
			charge(ep, qi, now);
	}
	if (!q->failed)
		is_lost(ep, qi, seq, 0, now);
}

static void on_ack(struct endpoint *ep, int qi, const struct packet *p, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	unsigned syndrome = mrc_get(p->ext[0], MRC_AETH_SYNDROME);
	uint16_t msn = mrc_get(p->ext[0], MRC_AETH_MSN);
	int64_t up_to = q->done - 1 + (int16_t)(msn - (uint16_t)(q->done - 1));
	if (up_to >= q->fresh)                /* of what was never sent */
		return;
	if (syndrome >> 5 == 3) {
		if (up_to + 1 < q->done || q->done == q->posted)
			return;               /* of what is done */
		fail(ep, qi, syndrome == MRC_AETH_NAK_ACCESS_ERROR ? "remote-access-error"
			: "remote-invalid-request");
		return;
	}
	q->heard_at = now;
	q->questions = 0;
	completed(ep, qi, up_to);
}

/* --- a responder --------------------------------------------------------------------------- */

static int is_received(const struct qp *q, int64_t seq)
{
	return seq <= q->cack || (seq <= q->high && q->here[seq % WINDOW]);
}

/* The block of 64 that a SACK shows (row 6): the trigger's, in turn with older ones with holes. */
static int64_t block_of(struct qp *q, int64_t seq)
{
	int64_t lowest = (q->cack + 1) & ~63, own = seq & ~63;
	if (own <= lowest || q->turn++ % 2 == 0)
		return own > lowest ? own : lowest;
	q->hole = q->hole < lowest || q->hole + 64 >= own ? lowest : q->hole + 64;
	return q->hole;
}

static void send_sack(struct endpoint *ep, int qi, const struct packet *p, int64_t base, int pr,
	int64_t trigger, int plane)
{
	struct qp *q = &ep->qp[qi];
	const uint8_t *time = p->opcode == MRC_OP_RELIABILITY_PROBE_REQ ? p->ext[0] : p->ext[1];
	uint64_t map = 0;
	for (int i = 0; i < 64; i++)
		if (base + i >= 0 && base + i <= q->high && is_received(q, base + i))
			map |= 1ull << i;
	struct out out;
	begin(&out, MRC_OP_RELIABILITY_SACK, q->peer.qpn, q->peer.psn + q->cack);
	uint8_t *seth = extend(&out, &MRC_SETH);
	mrc_put(seth, MRC_SETH_M, p->marked ? MRC_M_SKIP_ONCE : MRC_M_NONE);
	mrc_put(seth, MRC_SETH_PR, pr);
	mrc_put(seth, MRC_SETH_ACK_PSN_OFFSET,
		(uint16_t)(trigger < -0x8000 ? -0x8000 : trigger));
	mrc_put(seth, MRC_SETH_ENTROPY, p->ev);
	mrc_put(seth, MRC_SETH_SPDCID, q->mine.qpn & 0xFFFF);
	mrc_put(seth, MRC_SETH_DPDCID, q->peer.qpn & 0xFFFF);
	mrc_put(seth, MRC_SETH_CACK_PSN, (q->peer.psn + q->cack) & 0xFFFFFF);
	mrc_put(seth, MRC_SETH_SACK_OFFSET, (uint16_t)(base - q->cack));
	mrc_put(seth, MRC_SETH_SACK_BITMAP, map);
	uint8_t *state = extend(&out, &MRC_CC_STATE);
	mrc_put(state, MRC_CC_STATE_TX_TIMESTAMP, p->opcode == MRC_OP_RELIABILITY_PROBE_REQ
		? mrc_get(time, MRC_PETH_TX_TIMESTAMP)
		: time ? mrc_get(time, MRC_TSETH_TX_TIMESTAMP) : 0);
	mrc_put(state, MRC_CC_STATE_OOO_COUNT, q->high - q->cack);
	mrc_put(state, MRC_CC_STATE_RCVD_BYTES, (q->rx_bytes + 255) / 256 & 0xFFFFFF);
	if (q->high < base + 64)
		q->credit = 0;
	send_out(ep, &out, control_path(ep, plane), MRC_DSCP_CONTROL, MRC_ECN_NOT_ECT);
}

static void send_nack(struct endpoint *ep, int qi, const struct packet *p, unsigned reason)
{
	struct qp *q = &ep->qp[qi];
	uint32_t psn = mrc_get(p->bth, MRC_BTH_PSN);
	struct out out;
	begin(&out, MRC_OP_RELIABILITY_NACK, q->peer.qpn, psn);
	uint8_t *neth = extend(&out, &MRC_NETH);
	mrc_put(neth, MRC_NETH_NACK_REASON, reason);
	mrc_put(neth, MRC_NETH_ENTROPY, p->ev);
	mrc_put(neth, MRC_NETH_SPDCID, q->mine.qpn & 0xFFFF);
	mrc_put(neth, MRC_NETH_DPDCID, q->peer.qpn & 0xFFFF);
	mrc_put(neth, MRC_NETH_NACK_PSN, psn);
	mrc_put(neth, MRC_NETH_CC_TYPE, 2);
	mrc_put(neth, MRC_NETH_TX_TIMESTAMP, p->ext[1] ? mrc_get(p->ext[1], MRC_TSETH_TX_TIMESTAMP) : 0);
	send_out(ep, &out, control_path(ep, -1), MRC_DSCP_CONTROL, MRC_ECN_NOT_ECT);
}

static void send_ack(struct endpoint *ep, int qi, unsigned syndrome, uint32_t psn, int plane)
{
	struct qp *q = &ep->qp[qi];
	struct out out;
	begin(&out, MRC_OP_ACKNOWLEDGE, q->peer.qpn, psn);
	uint8_t *aeth = extend(&out, &MRC_AETH);
	mrc_put(aeth, MRC_AETH_SYNDROME, syndrome);
	mrc_put(aeth, MRC_AETH_MSN, (q->rx_msn - 1) & 0xFFFFFF);
	send_out(ep, &out, control_path(ep, plane), MRC_DSCP_CONTROL, MRC_ECN_NOT_ECT);
}

static uint8_t *place_of(struct endpoint *ep, uint64_t va, uint32_t rkey, size_t n)
{
	for (int i = 0; i < ep->n_regions; i++) {
		struct region *r = &ep->region[i];
		if (r->rkey == rkey && va >= r->va && r->length >= n && va - r->va <= r->length - n)
			return r->memory + (va - r->va);
	}
	return NULL;
}

/* Opcode, payload and message length agree with each other. */
static int is_shaped(unsigned opcode, size_t n, uint64_t length, uint32_t pmtu)
{
	switch (opcode) {
	case MRC_OP_RDMA_WRITE_FIRST:
		return n == pmtu && length > pmtu;
	case MRC_OP_RDMA_WRITE_MIDDLE:
		return n == pmtu && length > 2ull * pmtu;
	case MRC_OP_RDMA_WRITE_LAST:
	case MRC_OP_RDMA_WRITE_LAST_IMM:
		return length > pmtu && n == (length - 1) % pmtu + 1;
	}
	return length <= pmtu && n == length;
}

/* The message of a packet, if it agrees with what others said of it. */
static int fits(struct arriving *a, unsigned opcode, int64_t seq, uint64_t va, uint32_t rkey,
	uint64_t length, uint32_t pmtu)
{
	int64_t n = packets_of(length, pmtu), least = seq - n + 2, most = seq - 1;
	uint64_t origin = va - (uint64_t)seq * pmtu;
	if (opcode == MRC_OP_RDMA_WRITE_LAST || opcode == MRC_OP_RDMA_WRITE_LAST_IMM)
		least = most = seq - n + 1;
	else if (opcode != MRC_OP_RDMA_WRITE_MIDDLE)
		least = most = seq;
	if (a->here) {
		least = least > a->first_min ? least : a->first_min;
		most = most < a->first_max ? most : a->first_max;
		if (a->origin != origin || a->rkey != rkey || a->length != length || least > most)
			return 0;
	}
	a->origin = origin, a->rkey = rkey, a->length = length, a->total = n;
	a->first_min = least, a->first_max = most;
	return 1;
}

static void complete_in_order(struct endpoint *ep, int qi)
{
	struct qp *q = &ep->qp[qi];
	int moved = 0;
	for (struct arriving *a; a = &q->arriving[q->rx_msn % MESSAGES], a->here && a->here == a->total;) {
		if (a->has_imm && q->receives == 0) {
			send_ack(ep, qi, MRC_AETH_NAK_INVALID_REQUEST, q->peer.psn + q->rx_done + a->total, -1);
			fail(ep, qi, "no-receive-posted");
			return;
		}
		if (a->has_imm) {
			q->receives--;
			tell(ep, RECEIVE, qi, q->received++, a->imm);
		}
		q->wimm_held -= a->wimm;
		q->rx_done += a->total;
		q->rx_msn++;
		memset(a, 0, sizeof *a);
		moved = 1;
	}
	for (int twice = 0; moved && twice < (q->cack == q->high ? 2 : 1); twice++)
		send_ack(ep, qi, MRC_AETH_ACK, q->peer.psn + q->rx_done, -1);
}

/* A packet that is next and may not write where it wants to, again and again, is the peer's. */
static void on_bad_key(struct endpoint *ep, int qi, const struct packet *p, int64_t seq, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	if (seq != q->cack + 1)
		return;
	if (q->refused && (!mrc_get(p->bth, MRC_BTH_RTX) || now - q->refused_at < ep->base_rtt / 2))
		return;
	q->refused_at = now;
	if (++q->refused < REFUSED_MAX)
		return;
	send_ack(ep, qi, MRC_AETH_NAK_ACCESS_ERROR, mrc_get(p->bth, MRC_BTH_PSN), -1);
	fail(ep, qi, "access-error");
}

static void on_data(struct endpoint *ep, int qi, const struct packet *p, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	const uint8_t *meth = p->ext[0], *reth = p->ext[2];
	int64_t seq = unwrap(mrc_get(p->bth, MRC_BTH_PSN), q->peer.psn, q->cack + 1);
	uint64_t va = mrc_get(reth, MRC_RETH_VA), length = mrc_get(reth, MRC_RETH_DMA_LENGTH);
	uint32_t rkey = mrc_get(reth, MRC_RETH_RKEY);
	int asks = mrc_get(p->bth, MRC_BTH_A);
	if (p->length > ep->pmtu)
		return;
	if (seq > q->cack + q->mine.mpr) {
		send_nack(ep, qi, p, MRC_NACK_PSN_OOR_WINDOW);
		return;
	}
	if (is_received(q, seq)) {
		send_sack(ep, qi, p, block_of(q, seq), 0, seq - q->cack, -1);
		if (q->cack == q->high && q->rx_msn > 0)
			send_ack(ep, qi, MRC_AETH_ACK, q->peer.psn + q->rx_done, -1);
		return;
	}
	uint8_t *to = place_of(ep, va, rkey, p->length);
	if (!to) {
		on_bad_key(ep, qi, p, seq, now);
		return;
	}
	int16_t ahead = mrc_get(meth, MRC_METH_MSN) - (uint16_t)q->rx_msn;
	if (!is_shaped(p->opcode, p->length, length, ep->pmtu) || ahead < 0 || ahead >= MESSAGES)
		return;
	struct arriving *a = &q->arriving[(q->rx_msn + ahead) % MESSAGES];
	if (!fits(a, p->opcode, seq, va, rkey, length, ep->pmtu))
		return;
	if (p->ext[3]) {
		if (q->wimm_held >= ep->max_wimm) {
			send_ack(ep, qi, MRC_AETH_NAK_INVALID_REQUEST, mrc_get(p->bth, MRC_BTH_PSN), -1);
			fail(ep, qi, "too-many-immediates");
			return;
		}
		q->wimm_held++;
		a->wimm = a->has_imm = 1;
		a->imm = mrc_get(p->ext[3], MRC_IMMDT_IMM);
	}
	memcpy(to, p->payload, p->length);
	for (int64_t k = q->high + 1; k <= seq; k++)
		q->here[k % WINDOW] = 0;
	q->here[seq % WINDOW] = 1;
	q->high = seq > q->high ? seq : q->high;
	while (q->cack < q->high && q->here[(q->cack + 1) % WINDOW])
		q->cack++;
	q->rx_bytes += p->length + NOMINAL_OVERHEAD;
	q->credit += p->length + NOMINAL_OVERHEAD;
	a->here++;
	if (q->credit >= SACK_BYTES || seq < q->asked || p->marked || asks || mrc_get(p->bth, MRC_BTH_RTX)) {
		int64_t base = block_of(q, seq);
		if (q->credit >= SACK_BYTES)
			q->credit = 0;
		send_sack(ep, qi, p, base, 0, seq - q->cack, -1);
	}
	q->asked = asks && seq > q->asked ? seq : q->asked;
	if (ahead == 0 && a->here == a->total)
		complete_in_order(ep, qi);
}

static void on_probe(struct endpoint *ep, int qi, const struct packet *p)
{
	struct qp *q = &ep->qp[qi];
	int16_t id = mrc_get(p->ext[0], MRC_PETH_PROBE_ID);
	int64_t base = q->cack + 1;
	send_sack(ep, qi, p, base, 1, id, p->plane);
	if (q->high > base + 63)
		send_sack(ep, qi, p, q->high & ~63, 1, id, p->plane);
	if (q->cack == q->high && q->rx_msn > 0)
		send_ack(ep, qi, MRC_AETH_ACK, q->peer.psn + q->rx_done, p->plane);
}

static void on_endpoint(struct endpoint *ep, const struct packet *p, uint64_t now)
{
	uint16_t id = mrc_get(p->bth, MRC_BTH_PSN);
	if (p->opcode == MRC_OP_ENDPOINT_RESPONSE) {
		if (id >= 0x8000 && !ep->echo_back[id % 32])
			ep->echo_back[id % 32] = now;
		else if (id == (ep->request_id & 0x7FFF)) {
			uint32_t all = (1u << ep->n_planes) - 1;
			ep->status_open = (ep->up & all) != all;   /* said again each second (row 19) */
			ep->status_at = now + 1000 * MS;
		}
		return;
	}
	unsigned op = mrc_get(p->ext[0], MRC_ERTH_OP);
	uint32_t mask = mrc_get(p->ext[0], MRC_ERTH_PORT_STATUS_MASK);
	if (op != MRC_ENDPOINT_EV_PROBE && op != MRC_ENDPOINT_PORT_STATUS_UPDATE)
		return;
	if (op == MRC_ENDPOINT_PORT_STATUS_UPDATE) {
		if (!(mask >> p->plane & 1))  /* a port that is down says nothing */
			return;
		if ((int16_t)(id - ep->remote_id) >= 0) {
			ep->remote_id = id;
			ep->remote_up = mask;
		}
	}
	int plane = op == MRC_ENDPOINT_EV_PROBE ? p->plane : -1;
	send_endpoint(ep, MRC_OP_ENDPOINT_RESPONSE, op, id, control_path(ep, plane), now);
}

/* --- what comes in ------------------------------------------------------------------------- */

static int is_same(const union address *a, const union address *b)
{
	if (a->any.sa_family == AF_INET)
		return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
	return !memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, 16);
}

/* Check the headers in the order of docs/wire.md, and find them; 0 if this is no packet of MRC. */
static int read_packet(struct endpoint *ep, const uint8_t *bth, size_t n, const union address *from,
	struct packet *p)
{
	uint16_t port = from->any.sa_family == AF_INET ? from->v4.sin_port : from->v6.sin6_port;
	size_t at = MRC_BTH.bytes, k = 0;
	if (n < MRC_BTH.bytes + MRC_ICRC.bytes)
		return 0;
	size_t end = n - MRC_ICRC.bytes;
	p->bth = bth;
	p->opcode = mrc_get(bth, MRC_BTH_OPCODE);
	p->ev = ntohs(port);
	const struct mrc_header *const *next = mrc_extensions(p->opcode);
	if (!next || mrc_get(bth, MRC_BTH_TVER))
		return 0;
	int data = *next == &MRC_METH;
	for (; *next; next++, k++) {
		p->ext[k] = NULL;
		if (*next == &MRC_TSETH && !mrc_get(bth, MRC_BTH_TS))
			continue;
		if (at + (*next)->bytes > end)
			return 0;
		p->ext[k] = bth + at;
		at += (*next)->bytes;
	}
	if (data && p->ext[1] && mrc_get(p->ext[1], MRC_TSETH_FTYPE) != MRC_FTYPE_TIMESTAMP)
		return 0;
	while (k < 4)
		p->ext[k++] = NULL;
	size_t pad = mrc_get(bth, MRC_BTH_PAD);
	if ((end - at) % 4 || pad > end - at)
		return 0;
	p->payload = bth + at;
	p->length = end - at - pad;
	if (p->length > (data ? MRC_PAYLOAD_BYTES_MAX : 0))
		return 0;
	uint32_t there = bth[end] | bth[end + 1] << 8 | bth[end + 2] << 16 | (uint32_t)bth[end + 3] << 24;
	return there == invariant_crc(from, p->ev, &ep->own[p->plane], bth, end);
}

static int take(struct endpoint *ep, int plane)
{
	uint8_t bytes[ROOM], control[128];
	union address from;
	struct iovec io = {bytes, sizeof bytes};
	struct msghdr m = {&from, sizeof from, &io, 1, control, sizeof control, 0};
	ssize_t n = recvmsg(ep->hears[plane].fd, &m, MSG_DONTWAIT);
	if (n < 0)
		return 0;
	struct packet p = {.plane = plane};
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
		    || (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS))
			p.marked = (*CMSG_DATA(c) & ECN_BITS) == MRC_ECN_CE;
	uint64_t now = now_ns();
	if (!ep->qp[0].peer.n_planes || !is_same(&from, &ep->qp[0].peer.plane[plane]))
		return 1;
	if (!read_packet(ep, bytes, n, &from, &p))
		return 1;
	uint32_t to = mrc_get(p.bth, MRC_BTH_DEST_QPN);
	int at_endpoint = p.opcode == MRC_OP_ENDPOINT_REQUEST || p.opcode == MRC_OP_ENDPOINT_RESPONSE;
	ep->heard[plane] = now;
	if (at_endpoint) {
		if (to == MRC_ENDPOINT_QPN)
			on_endpoint(ep, &p, now);
		return 1;
	}
	int qi = to & (QPS_MAX - 1);
	struct qp *q = &ep->qp[qi];
	if (!q->used || q->mine.qpn != to || !q->peer.qpn || q->failed)
		return 1;
	switch (p.opcode) {
	case MRC_OP_RELIABILITY_SACK:
		on_sack(ep, qi, &p, now);
		break;
	case MRC_OP_RELIABILITY_NACK:
		on_nack(ep, qi, &p, now);
		break;
	case MRC_OP_ACKNOWLEDGE:
		on_ack(ep, qi, &p, now);
		break;
	case MRC_OP_RELIABILITY_PROBE_REQ:
		on_probe(ep, qi, &p);
		break;
	default:
		on_data(ep, qi, &p, now);
	}
	return 1;
}

/* --- time ---------------------------------------------------------------------------------- */

static void timers(struct endpoint *ep, int qi, uint64_t now)
{
	struct qp *q = &ep->qp[qi];
	if (q->done == q->fresh && q->una == q->next)
		return;
	judge(ep, qi, now);
	if (q->una == q->next) {              /* all is there, and the ACK is missing */
		if (now - q->heard_at > (ep->base_rtt / 4) << (q->questions > 6 ? 6 : q->questions)) {
			q->questions++;
			send_probe(ep, qi, control_path(ep, -1), q->heard_at = now);
		}
	} else if (now - (q->heard_at > q->sent_at ? q->heard_at : q->sent_at)
		   > (ep->base_rtt * 5 / 4) << (q->questions > 4 ? 4 : q->questions)) {
		int path = control_path(ep, -1);     /* silence: ask, each time on the next plane */
		if (path >= 0)
			send_probe(ep, qi, path, q->sent_at = now);
		q->questions++;
	}
	if (now - q->epoch_at < epoch_length(ep, q->epochs))
		return;
	charge(ep, qi, now);
	if (q->failed)
		return;
	for (int64_t seq = q->una; seq < q->next; seq++)
		if (q->sent[seq % WINDOW].state == OUT && now - q->sent[seq % WINDOW].at > ep->rto)
			is_lost(ep, qi, seq, 1, now);
}

static void tend_paths(struct endpoint *ep, uint64_t now)
{
	int qi = 0;
	while (qi < QPS_MAX - 1 && (!ep->qp[qi].used || ep->qp[qi].failed))
		qi++;
	for (int p = 0; p < ep->n_paths; p++) {
		struct path *way = &ep->path[p];
		if (!way->bad || now < way->probe_at || !is_usable(ep, way->plane))
			continue;
		send_probe(ep, qi, p, now);
		way->spacing = way->spacing * 2 < 100 * MS ? way->spacing * 2 : 100 * MS;
		way->probe_at = now + way->spacing;
	}
	if (ep->status_open && now >= ep->status_at) {
		send_endpoint(ep, MRC_OP_ENDPOINT_REQUEST, MRC_ENDPOINT_PORT_STATUS_UPDATE,
			ep->request_id & 0x7FFF, control_path(ep, -1), now);
		ep->status_at = now + ep->status_spacing;
		ep->status_spacing = ep->status_spacing < 500 * MS ? ep->status_spacing * 2 : 1000 * MS;
	}
}

void set_port(struct endpoint *ep, int plane, int up)
{
	ep->up = up ? ep->up | 1u << plane : ep->up & ~(1u << plane);
	ep->request_id++;
	ep->status_open = 1;
	ep->status_at = 0;
	ep->status_spacing = ep->rto;
	tend_paths(ep, now_ns());
}

/* One turn of the loop: what has come, what is due, what may leave. It waits, at most until
   `until`, for packets and for `other_fd`; true if that one has something. */
int turn(struct endpoint *ep, int other_fd, uint64_t until)
{
	struct pollfd fds[PLANES_MAX + 1];
	int work = 0;
	for (int plane = 0; plane < ep->n_planes; plane++) {
		fds[plane] = (struct pollfd){ep->hears[plane].fd, POLLIN, 0};
		for (int k = 0; k < 64 && take(ep, plane); k++)
			work = 1;
	}
	uint64_t now = now_ns();
	for (int qi = 0; qi < QPS_MAX; qi++)
		if (ep->qp[qi].used && ep->qp[qi].peer.qpn && !ep->qp[qi].failed) {
			timers(ep, qi, now);
			pump(ep, qi, now);
		}
	tend_paths(ep, now);
	fds[ep->n_planes] = (struct pollfd){other_fd, POLLIN, 0};
	uint64_t wait = until > now ? until - now : 0, tick = ep->base_rtt / 8;
	if (wait > tick)
		wait = tick;
	if (work || ep->taken != ep->n_events)
		wait = 0;
	struct timespec t = {0, (long)wait};
	ppoll(fds, ep->n_planes + 1, &t, NULL);
	return (fds[ep->n_planes].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
}

/* The idle round trip, by EV probes (docs/protocol.md): every time constant follows it. */
void measure(struct endpoint *ep)
{
	uint64_t longest = 0, until;
	memset(ep->echo_back, 0, sizeof ep->echo_back);
	for (int i = 0; i < 32; i++) {
		int plane = i % ep->n_planes;
		ep->echo_sent[i] = now_ns();
		send_endpoint(ep, MRC_OP_ENDPOINT_REQUEST, MRC_ENDPOINT_EV_PROBE, 0x8000 | i,
			plane * ep->per_plane, ep->echo_sent[i]);
		for (until = now_ns() + MS; now_ns() < until;)
			turn(ep, -1, until);
	}
	for (until = now_ns() + 20 * MS; now_ns() < until;)
		turn(ep, -1, until);
	for (int i = 0; i < 32; i++)
		if (ep->echo_back[i] && ep->echo_back[i] - ep->echo_sent[i] > longest)
			longest = ep->echo_back[i] - ep->echo_sent[i];
	ep->base_rtt = longest > 500 * US ? longest : 500 * US;
	ep->rto = 4 * ep->base_rtt > RTO_MIN ? 4 * ep->base_rtt : RTO_MIN;
}

/* --- set-up -------------------------------------------------------------------------------- */

static void parse_address(const char *text, uint16_t port, union address *out)
{
	memset(out, 0, sizeof *out);
	if (inet_pton(AF_INET, text, &out->v4.sin_addr) == 1) {
		out->v4.sin_family = AF_INET;
		out->v4.sin_port = htons(port);
	} else if (inet_pton(AF_INET6, text, &out->v6.sin6_addr) == 1) {
		out->v6.sin6_family = AF_INET6;
		out->v6.sin6_port = htons(port);
	} else {
		die("%s: an IP address is accepted", text);
	}
}

/* A socket of a plane: on `port`, or on the first of those above it that is free. */
static void open_path(struct endpoint *ep, struct path *path, int plane, uint16_t port, int tries)
{
	const union address *own = &ep->own[plane];
	int v4 = own->any.sa_family == AF_INET, on = 1, bytes = 4 << 20;
	int probe = v4 ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE;
	path->fd = socket(own->any.sa_family, SOCK_DGRAM, 0);
	path->plane = plane;
	setsockopt(path->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
	setsockopt(path->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
	setsockopt(path->fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
		&probe, sizeof probe);            /* fragment nothing: the iCRC counts the bit */
	setsockopt(path->fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_RECVTOS : IPV6_RECVTCLASS, &on,
		sizeof on);
	for (path->port = port; tries--; path->port++) {
		union address at = *own;
		if (v4)
			at.v4.sin_port = htons(path->port);
		else
			at.v6.sin6_port = htons(path->port);
		if (!bind(path->fd, &at.any, v4 ? sizeof at.v4 : sizeof at.v6))
			return;
	}
	die("a plane: %s", strerror(errno));
}

void open_planes(struct endpoint *ep, char *names, int n_planes, int per_plane)
{
	char *rest = names;
	make_table();
	for (char *name; (name = strtok_r(rest, ",", &rest)) && ep->n_planes < n_planes;)
		parse_address(name, 0, &ep->own[ep->n_planes++]);
	ep->per_plane = per_plane;
	for (int plane = 0; plane < ep->n_planes; plane++) {
		open_path(ep, &ep->hears[plane], plane, MRC_UDP_PORT, 64);
		for (int k = 0; k < per_plane; k++)
			open_path(ep, &ep->path[ep->n_paths++], plane,
				SOURCE_BASE + draw(65000 - SOURCE_BASE), 256);
	}
	forget_peer(ep);
}

void forget_peer(struct endpoint *ep)
{
	ep->up = ep->remote_up = (1u << ep->n_planes) - 1;
	ep->base_rtt = MS;
	ep->rto = RTO_MIN;
	ep->linear_cnt = 3;
	ep->exp_cnt = 7;
}

int new_qp(struct endpoint *ep)
{
	int qi = 0;
	while (qi < QPS_MAX && ep->qp[qi].used)
		qi++;
	if (qi == QPS_MAX)
		die("no queue pair left");
	struct qp *q = &ep->qp[qi];
	memset(q, 0, sizeof *q);
	q->used = 1;
	q->mine = (struct attributes){(draw(0x3FF00) + 1) << 6 | qi, draw(1 << 24),
		ep->pmtu, WINDOW, ep->max_wimm, 0, ep->n_planes, {{{0}}}};
	q->cack = q->high = q->rx_done = q->asked = -1;
	q->cwnd = 256;
	return qi;
}

void connect_qp(struct endpoint *ep, int qi)
{
	struct qp *q = &ep->qp[qi];
	if (q->peer.pmtu < ep->pmtu)
		ep->pmtu = q->peer.pmtu;
	q->heard_at = q->sent_at = q->epoch_at = now_ns();
}

/* One end of two that write to each other's memory, over MRC's C API.

       pair SIZE COUNT DEPTH [second]

   It prints where it is, reads the same of its peer, writes COUNT messages of up to SIZE bytes, of
   one to three buffers each, some behind a small one that is inline, the last of each DEPTH signaled,
   then one with immediate data; waits for the peer's, and says how many
   bytes in its memory are not what the peer wrote. The second end stays in RTR until it has all that,
   and writes then. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "mrc.h"

#define BUFFERS 3
#define INLINE 512
#define PATTERN(seed, i) ((uint8_t)((i) * 7 + ((i) >> 8) * 13 + (seed)))

static void must(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static void step(struct mrc_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct mrc_qp_attr m = { 0 };
	must(mrc_modify_qp(qp, a, mask, &m, 0) == 0, "mrc_modify_qp");
}

static void take(struct mrc_cq *cq, struct ibv_wc *wc)
{
	int n;
	while ((n = mrc_poll_cq(cq, 1, wc)) == 0)
		sched_yield();
	must(n == 1, "mrc_poll_cq");
	if (wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc->status));
		exit(1);
	}
}

/* Writes `n` bytes, the last request of one write: of `buffers` parts, which need not lie together. */
static void write_parts(struct mrc_qp *qp, struct ibv_send_wr *wr, uint8_t *from, size_t n, int buffers,
			uint32_t lkey)
{
	struct ibv_sge list[BUFFERS];
	struct ibv_send_wr *bad;
	for (int k = 0; k < buffers; k++) {
		size_t first = n / buffers * k, end = k == buffers - 1 ? n : n / buffers * (k + 1);
		list[k] = (struct ibv_sge){ (uintptr_t)from + first, (uint32_t)(end - first), lkey };
	}
	wr->sg_list = list;
	wr->num_sge = buffers;
	must(mrc_post_send(qp, wr, &bad) == 0, "mrc_post_send");
	memset(list, 0xee, sizeof list); /* the list is the caller's again */
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	int second = argc > 4;
	size_t size = strtoul(argv[1], 0, 0), count = strtoul(argv[2], 0, 0), depth = strtoul(argv[3], 0, 0);
	struct ibv_device **list = ibv_get_device_list(0);
	must(list && list[0], "ibv_get_device_list");
	struct ibv_context *context = ibv_open_device(list[0]);
	must(context != 0, "ibv_open_device");
	ibv_free_device_list(list);
	struct mrc_device_attr device;
	int supported = 0;
	must(mrc_query_device(context, &device, &supported) == 0 && supported, "mrc_query_device");
	struct mrc_context *mrc = mrc_create_context(context, 0);
	must(mrc != 0, "mrc_create_context");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	must(pd != 0, "ibv_alloc_pd");
	uint8_t *memory = calloc(2, size); /* what is sent, then what comes */
	must(memory != 0, "calloc");
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(mr != 0, "ibv_reg_mr");
	struct mrc_cq *sent = mrc_create_cq(mrc, 256, 0, 0, 0), *came = mrc_create_cq(mrc, 16, 0, 0, 0);
	must(sent && came, "mrc_create_cq");
	struct mrc_qp_init_attr init = { .send_cq = sent, .recv_cq = came, .pd = pd };
	init.cap = (struct ibv_qp_cap){ .max_send_wr = 128, .max_recv_wr = 4, .max_send_sge = BUFFERS,
		.max_recv_sge = 1, .max_inline_data = INLINE };
	struct mrc_qp *qp = mrc_create_qp(mrc, &init);
	must(qp != 0, "mrc_create_qp");
	uint32_t qpn;
	union ibv_gid gid, peer_gid;
	must(mrc_get_qpn(qp, &qpn) == 0, "mrc_get_qpn");
	must(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
	struct ibv_port_attr port = { 0 };
	must(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE, "ibv_query_port");

	uint32_t psn = qpn * 77 & 0xffffff, peer_qpn, peer_psn, peer_rkey;
	uint64_t peer_address;
	unsigned mtu;
	printf("%" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %u ", qpn, psn, mr->rkey,
	       (uint64_t)(uintptr_t)(memory + size), (unsigned)port.active_mtu);
	for (int i = 0; i < 16; i++)
		printf("%02x", gid.raw[i]);
	printf("\n");
	fflush(stdout);
	must(scanf("%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu64 " %u ", &peer_qpn, &peer_psn, &peer_rkey,
		   &peer_address, &mtu) == 5, "peer");
	for (int i = 0; i < 16; i++)
		must(scanf("%2hhx", &peer_gid.raw[i]) == 1, "peer's GID");

	step(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
	     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	struct ibv_recv_wr receive = { .wr_id = 7 }, *bad_receive;
	must(mrc_post_recv(qp, &receive, &bad_receive) == 0, "mrc_post_recv");
	step(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu,
		.dest_qp_num = peer_qpn, .rq_psn = peer_psn,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = peer_gid } } },
	     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	struct ibv_qp_attr to_rts = { .qp_state = IBV_QPS_RTS, .sq_psn = psn };
	if (!second)
		step(qp, &to_rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
	printf("ready\n");
	fflush(stdout);
	char go[8];
	must(scanf("%7s", go) == 1, "go"); /* the peer is ready too */

	struct ibv_wc wc, received;
	if (second) {
		take(came, &received);
		step(qp, &to_rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
	}
	for (size_t i = 0; i < size; i++)
		memory[i] = PATTERN(psn, i);
	size_t done = 0;
	for (size_t i = 0; i <= count; i++) {
		size_t piece = size / (count + 1), at = i * piece, n = i == count ? size - at : piece;
		int signaled = i == count || i % depth == depth - 1;
		struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE };
		wr.wr.rdma.remote_addr = peer_address + at;
		wr.wr.rdma.rkey = peer_rkey;
		if (i % 4 == 2) { /* the beginning from memory without a key, which is another's at once */
			uint8_t copy[INLINE];
			memcpy(copy, memory + at, INLINE);
			wr.send_flags = IBV_SEND_INLINE;
			write_parts(qp, &wr, copy, INLINE, 2, 0);
			memset(copy, 0xee, INLINE);
			wr.wr.rdma.remote_addr += INLINE;
			at += INLINE;
			n -= INLINE;
		}
		wr.wr_id = i;
		wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
		wr.opcode = i == count ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
		wr.imm_data = htonl(psn);
		write_parts(qp, &wr, memory + at, n, (i + 1) % BUFFERS + 1, mr->lkey);
		if (signaled) {
			take(sent, &wc);
			done++;
			must(wc.wr_id == i && wc.opcode == IBV_WC_RDMA_WRITE && wc.qp_num == qpn, "what was sent");
		}
	}
	if (!second)
		take(came, &received);
	must(received.wr_id == 7 && received.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
	     received.wc_flags == IBV_WC_WITH_IMM && received.byte_len == size - size / (count + 1) * count,
	     "what came");
	size_t wrong = 0;
	for (size_t i = 0; i < size; i++)
		wrong += memory[size + i] != PATTERN(ntohl(received.imm_data), i);
	struct ibv_qp_attr now;
	must(mrc_query_qp(qp, &now, IBV_QP_STATE, 0, 0, 0) == 0, "mrc_query_qp");
	printf("%zu signaled, %zu bytes, %zu wrong, state %d, psn %s\n", done, size, wrong, (int)now.qp_state,
	       ntohl(received.imm_data) == peer_psn ? "the peer's" : "wrong");
	fflush(stdout);
	must(scanf("%7s", go) == 1, "end"); /* the peer has all, too */
	must(mrc_destroy_qp(qp) == 0, "mrc_destroy_qp");
	must(mrc_destroy_cq(sent) == 0 && mrc_destroy_cq(came) == 0, "mrc_destroy_cq");
	must(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
	must(ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd");
	must(mrc_destroy_context(mrc) == 0, "mrc_destroy_context");
	must(ibv_close_device(context) == 0, "ibv_close_device");
	free(memory);
	return 0;
}

/* A library that implements mrc_ctl.h badly; BAD says how. Declarations are those of openmrc's header.
   `slow`: a batch of probes takes seconds. `counts`: more answers and events than were asked for.
   `order`: answers twice, to numbers nobody asked, and on another port; events out of order. `bare`: no
   optional capability. `deaf`: probes are accepted, and never answered. `opens`: a device is still opening. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mrc.h>
#include <mrc_ctl.h>

#define API __attribute__((visibility("default")))

static char name[] = "bad0";
static long words[64]; /* whatever a handle points to */

static int is(const char *how)
{
	const char *bad = getenv("BAD");
	return bad && !strcmp(bad, how);
}

API struct ibv_device **ibv_get_device_list(int *n)
{
	static struct ibv_device *list[2];
	list[0] = (struct ibv_device *)words;
	*n = 1;
	return list;
}
API void ibv_free_device_list(struct ibv_device **list) { (void)list; }
API const char *ibv_get_device_name(struct ibv_device *device) { (void)device; return name; }
API struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	(void)device;
	while (is("opens"))
		usleep(1000);
	return (struct ibv_context *)words;
}
API int ibv_close_device(struct ibv_context *context) { (void)context; return 0; }
API int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	(void)context, (void)port, (void)index;
	memset(gid, 1, sizeof *gid);
	return 0;
}
API struct mrc_context *mrc_create_context(struct ibv_context *c, struct mrc_context_attr *a)
{
	(void)c, (void)a;
	return (struct mrc_context *)words;
}
API int mrc_destroy_context(struct mrc_context *context) { (void)context; return 0; }

API void mrc_ctl_query_version(uint32_t *now, uint32_t *oldest, uint32_t *own, uint32_t *own_oldest)
{
	*now = MRC_CTL_API_CURRENT_VERSION;
	*oldest = *own = *own_oldest = 0;
}

API int mrc_ctl_query_device(struct ibv_context *context, struct mrc_ctl_device_attr *attr)
{
	(void)context;
	memset(attr, 0, sizeof *attr);
	attr->ev.ev_max_count_profile = 64;
	attr->ev.ev_count_align = 1;
	attr->phy_port_mask = 6;
	if (!is("bare"))
		attr->opt_attr = MRC_CTL_OPT_CAP_EV_EVENT | MRC_CTL_OPT_CAP_EP_OP_EV_PROBE;
	return 0;
}

/* There is no mrc_ctl_query_port, no format profile, no profile of congestion control. */

API int mrc_ctl_modify_ev_profile(struct mrc_context *context, uint64_t id,
				  struct mrc_ctl_ev_profile_attr *attr, int mask)
{
	(void)context, (void)id, (void)attr, (void)mask;
	errno = is("bare") ? ENOTSUP : 0;
	return is("bare") ? -1 : 0;
}

API struct mrc_cq *mrc_ctl_create_ev_event_cq(struct mrc_context *context, int cqe, void *of,
					      struct mrc_comp_channel *channel, int vector)
{
	(void)context, (void)cqe, (void)of, (void)channel, (void)vector;
	return (struct mrc_cq *)words;
}

API int mrc_ctl_poll_ev_event(struct mrc_cq *cq, int n, struct mrc_ctl_ev_event *events)
{
	static int calls;
	(void)cq;
	if (is("counts"))
		return n + 7;
	if (!is("order") || calls++ > 0)
		return 0;
	memset(events, 0, 2 * sizeof *events);
	events[0].state = MRC_CTL_EV_GOOD; /* good again, and only then bad */
	events[1].state = MRC_CTL_EV_ASSUMED_BAD;
	for (int i = 0; i < 2; i++) {
		events[i].profile_id = 1;
		events[i].ev.val[2] = 0xc0; /* EV 0xc000: plane 0, uplink 0 */
		events[i].ev.port = 1;
	}
	return 2;
}

API int mrc_ctl_ep_batch_send_wait(struct mrc_context *context, uint8_t tc,
				   enum mrc_ctl_ep_op_type type, struct mrc_ctl_ep_req *req, int n,
				   uint32_t timeout_ns, struct mrc_ctl_ep_rsp *rsp, int *answered)
{
	(void)context, (void)tc, (void)type, (void)timeout_ns;
	*answered = 0;
	if (is("slow"))
		sleep(3);
	if (is("deaf")) {
		errno = ETIMEDOUT;
		return -1;
	}
	for (int i = 0; i < n; i++) {
		rsp[i] = (struct mrc_ctl_ep_rsp){ .req_id = req[i].req_id,
						  .port = req[i].req_ev.port, .rtt = 5000 };
		if (is("order") && i % 2)
			rsp[i].req_id = req[i - 1].req_id; /* twice the same, none for this one */
		if (is("order") && i % 4 == 3)
			rsp[i].req_id = 60000; /* a question that nobody asked */
	}
	*answered = is("counts") ? n + 1 : n;
	return 0;
}

/* A controller's day in C, as its errors are told there: -1 and errno, NULL, or an errno below 0. It
   has no peer: `may` says whether it has CAP_NET_ADMIN. Prints the line of what is not as expected. */

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mrc.h>
#include <mrc_ctl.h>

enum { FORMAT = 13, PROFILE = 7, ROUNDS = 400 };

static int wrong;
#define EXPECT(what) do { if (!(what)) { wrong++; \
	printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); } } while (0)
#define FAILS(call, code) do { errno = 0; EXPECT((call) == -1 && errno == (code)); } while (0)

static struct mrc_context *mrc;
static struct mrc_ctl_ev ev[2];

static int set(uint64_t profile, const struct mrc_ctl_ev *one, int state)
{
	struct mrc_ctl_ev_op_entry entry = { .ev = *one, .state = state };
	struct mrc_ctl_ev_profile_attr attr = {
		.ev_op = { MRC_CTL_EV_OP_MODIFY_EV_STATE, &entry, 1 } };
	return mrc_ctl_modify_ev_profile(mrc, profile, &attr, MRC_CTL_EV_PROFILE_EV_OP);
}

static int state_of(const struct mrc_ctl_ev *one)
{
	struct mrc_ctl_ev_op_entry entry = { .ev = *one };
	struct mrc_ctl_ev_profile_attr attr = {
		.ev_op = { MRC_CTL_EV_OP_QUERY_EV_STATE, &entry, 1 } };
	if (mrc_ctl_query_ev_profile(mrc, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_OP))
		return -errno;
	return entry.state;
}

static int step(uint64_t profile, int state)
{
	struct mrc_ctl_ev_profile_attr attr = { .profile_state = state };
	return mrc_ctl_modify_ev_profile(mrc, profile, &attr, MRC_CTL_EV_PROFILE_STATE);
}

static void configure(void)
{
	struct mrc_ctl_ev_fmt_field field = { 16 };
	struct mrc_ctl_ev_fmt_profile_attr form = { .profile_state = MRC_CTL_PROFILE_OFFLINE,
		.ev_fmt_mode = MRC_CTL_EV_FMT_MODE_UDP,
		.ev_fmt_op = { MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, &field, 1 } };
	int all = MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE | MRC_CTL_EV_FMT_PROFILE_OP;
	EXPECT(!mrc_ctl_modify_ev_fmt_profile(mrc, FORMAT, &form, all));
	form.profile_state = MRC_CTL_PROFILE_ONLINE;
	EXPECT(!mrc_ctl_modify_ev_fmt_profile(mrc, FORMAT, &form, MRC_CTL_EV_FMT_PROFILE_STATE));

	struct mrc_ctl_ev_profile_attr attr = { .profile_state = MRC_CTL_PROFILE_OFFLINE,
		.ev_mode = MRC_CTL_EV_MODE_EXP, .ev_fmt_profile_id = FORMAT, .ev_count = 2,
		.ev_min_active = 1, .ev_event_mask = MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD };
	all = MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE | MRC_CTL_EV_PROFILE_FMT_ID |
	      MRC_CTL_EV_PROFILE_COUNT | MRC_CTL_EV_PROFILE_MIN_ACTIVE | MRC_CTL_EV_PROFILE_EVENT_MASK;
	EXPECT(!mrc_ctl_modify_ev_profile(mrc, PROFILE, &attr, all));
	FAILS(step(PROFILE, MRC_CTL_PROFILE_ONLINE), EINVAL); /* no EV was replaced */
	for (int i = 0; i < 2; i++) {
		struct mrc_ctl_ev_op_entry entry = { .ev_new = ev[i], .state = MRC_CTL_EV_GOOD };
		attr.ev_op.op = MRC_CTL_EV_OP_REPLACE_EV;
		attr.ev_op.entries = &entry;
		attr.ev_op.entry_count = 1;
		EXPECT(!mrc_ctl_modify_ev_profile(mrc, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_OP));
	}
	EXPECT(!step(PROFILE, MRC_CTL_PROFILE_ONLINE));
}

/* A thread denies an EV, and allows it again; its own is denied in the end. */
static void *denies(void *mine)
{
	for (int i = 0; i <= ROUNDS; i++)
		if (set(PROFILE, mine, i % 2 ? MRC_CTL_EV_GOOD : MRC_CTL_EV_DENIED))
			return mine;
	return 0;
}

/* Another one asks for the state of both, which is one of two at any time. */
static void *asks(void *unused)
{
	(void)unused;
	for (int i = 0; i < ROUNDS; i++)
		for (int k = 0; k < 2; k++) {
			int state = state_of(&ev[k]);
			if (state != MRC_CTL_EV_GOOD && state != MRC_CTL_EV_DENIED)
				return &ev[k];
		}
	return 0;
}

static void threads(void)
{
	pthread_t all[3];
	void *failed;
	pthread_create(&all[0], 0, denies, &ev[0]);
	pthread_create(&all[1], 0, denies, &ev[1]);
	pthread_create(&all[2], 0, asks, 0);
	for (int i = 0; i < 3; i++) {
		pthread_join(all[i], &failed);
		EXPECT(!failed);
	}
	EXPECT(state_of(&ev[0]) == MRC_CTL_EV_DENIED && state_of(&ev[1]) == MRC_CTL_EV_DENIED);
}

static void wrong_calls(int may)
{
	int refused = may ? EINVAL : EPERM;
	struct mrc_ctl_port_attr port = { MRC_CTL_PORT_ADMIN_DISABLED };
	struct mrc_ctl_ev_profile_attr attr = { 0 };
	struct mrc_ctl_ep_rsp answer;
	struct mrc_ctl_ep_req question = { 0 };
	int n = -1;
	FAILS(mrc_ctl_query_port(mrc, 0, &port, MRC_CTL_PORT_ADMIN_STATE), refused);
	FAILS(mrc_ctl_modify_port(mrc, 1, &port, 0), refused);
	FAILS(mrc_ctl_modify_ev_profile(mrc, PROFILE, &attr, MRC_CTL_EV_PROFILE_VENDOR_CFG), refused);
	FAILS(mrc_ctl_query_ev_profile(mrc, 99, 0, MRC_CTL_EV_PROFILE_STATE), refused);
	FAILS(mrc_ctl_ep_batch_send_wait(mrc, 0, MRC_CTL_EP_OP_EV_PROBE, &question, 0, 0, &answer, &n),
	      refused);
	errno = 0;
	EXPECT(!mrc_ctl_create_ev_event_cq(mrc, 0, 0, 0, 0) && errno == refused);
	EXPECT(mrc_ctl_poll_ev_event((struct mrc_cq *)mrc, 1, 0) == -EINVAL);
	FAILS(mrc_ctl_modify_cc_profile(mrc, 0, 0, MRC_CTL_CC_PROFILE_STATE), refused);
	FAILS(mrc_ctl_query_ev_fmt_profile(0, FORMAT, 0, MRC_CTL_EV_FMT_PROFILE_STATE), EINVAL);
	FAILS(set(PROFILE + 1, &ev[0], MRC_CTL_EV_DENIED), refused);
}

static void port_1_goes_down(struct ibv_context *context)
{
	struct mrc_ctl_port_attr port = { MRC_CTL_PORT_ADMIN_DISABLED };
	struct ibv_port_attr shown = { 0 };
	EXPECT(!mrc_ctl_modify_port(mrc, 1, &port, MRC_CTL_PORT_ADMIN_STATE));
	EXPECT(!ibv_query_port(context, 1, &shown) && shown.state == IBV_PORT_DOWN);
	port.port_admin_state = MRC_CTL_PORT_ADMIN_ENABLED;
	EXPECT(!mrc_ctl_modify_port(mrc, 1, &port, MRC_CTL_PORT_ADMIN_STATE));
	EXPECT(!ibv_query_port(context, 1, &shown) && shown.state == IBV_PORT_ACTIVE);
}

/* EVs of an ordinary network are source ports: two of those to which the device has sockets. */
static void find_evs(void)
{
	int n = 0;
	for (int fd = 3; fd < 1024 && n < 2; fd++) {
		struct sockaddr_in at;
		socklen_t size = sizeof at;
		if (getsockname(fd, (struct sockaddr *)&at, &size) || at.sin_family != AF_INET)
			continue;
		int number = ntohs(at.sin_port);
		if (number < 0xc000)
			continue;
		ev[n].val[0] = number >> 8;
		ev[n].val[1] = number;
		ev[n++].port = 1;
	}
	EXPECT(n == 2);
}

int main(int argc, char **argv)
{
	int may = argc > 1 && atoi(argv[1]), supported = 0;
	struct ibv_device **list = ibv_get_device_list(0);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : 0;
	struct mrc_ctl_device_attr device;
	uint32_t now, oldest;
	if (!context || !(mrc = mrc_create_context(context, 0)))
		return 2;
	find_evs();
	mrc_ctl_query_version(&now, &oldest, 0, 0);
	EXPECT(now == MRC_CTL_API_CURRENT_VERSION && oldest <= now);
	EXPECT(!mrc_ctl_query_device_ex(context, mrc, &device, &supported) && supported);
	EXPECT(device.phy_port_mask == 2 && device.ev.ev_fmt_mode_mask == MRC_CTL_EV_FMT_MODE_UDP);
	wrong_calls(may);
	if (may) {
		configure();
		EXPECT(state_of(&ev[0]) == MRC_CTL_EV_GOOD);
		EXPECT(!set(PROFILE, &ev[0], MRC_CTL_EV_DENIED) && state_of(&ev[0]) == MRC_CTL_EV_DENIED);
		threads();
		port_1_goes_down(context);
		wrong_calls(may);
	}
	EXPECT(!mrc_destroy_context(mrc));
	FAILS(set(PROFILE, &ev[0], MRC_CTL_EV_GOOD), EINVAL);
	EXPECT(!ibv_close_device(context));
	printf("%d wrong\n", wrong);
	return wrong != 0;
}

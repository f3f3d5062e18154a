/* What stands around the code of a page of OCP's examples for controllers: includes, the profile that
   the page says is there, and a peer. `PAGE` is the code, as statements of one function. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mrc.h>
#include <mrc_ctl.h>

#define ERROR __LINE__
enum { THERE = 13, PATIENCE_S = 16 }; /* hosts start 8 s after each other */

static int page(void)
{
#include PAGE
	return 0;
}

/* The profile with number 13, in mode AUTO: the device has it as long as it is open. */
static int prepare(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
	struct mrc_context *mrc = context ? mrc_create_context(context, NULL) : NULL;
	struct mrc_ctl_ev_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE,
		.ev_mode = MRC_CTL_EV_MODE_AUTO,
	};
	int mask = MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE |
		   MRC_CTL_EV_PROFILE_MIN_ACTIVE | MRC_CTL_EV_PROFILE_EVENT_MASK;
	if (!mrc || mrc_ctl_modify_ev_profile(mrc, THERE, &attr, mask))
		return -1;
	attr.profile_state = MRC_CTL_PROFILE_ONLINE;
	return mrc_ctl_modify_ev_profile(mrc, THERE, &attr, MRC_CTL_EV_PROFILE_STATE);
}

int main(void)
{
	if (prepare()) {
		perror("prepare");
		return 1;
	}
	const char *rank = getenv("OPENMRC_RANK");
	if (rank && strcmp(rank, "0")) { /* it answers */
		sleep(PATIENCE_S);
		return 0;
	}
	sleep(PATIENCE_S);
	int line = page();
	printf("page ended at line %d\n", line);
	fflush(stdout);
	return line != 0;
}

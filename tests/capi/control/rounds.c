/* Runs the example of a controller within a test: its pause between two rounds calls the test, and
   its exit returns. */
#include <setjmp.h>
#include <time.h>

int example_main(int argc, char **argv);
static jmp_buf here;
static void (*pause_of_test)(void);

int example_run(int argc, char **argv, void (*pause)(void))
{
	pause_of_test = pause;
	int code = setjmp(here);
	return code ? code : example_main(argc, argv);
}

int example_pause(const struct timespec *asked, struct timespec *left)
{
	(void)asked, (void)left;
	pause_of_test();
	return 0;
}

void example_exit(int code) { longjmp(here, code ? code : -1); }

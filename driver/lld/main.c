// main.c: the program ld.lld, which amosc build runs: lld is in libamosc.
int amosc_lld(int argc, char **argv); // lld.cpp

int main(int argc, char **argv)
{
	return amosc_lld(argc, argv);
}

// lld.cpp: lld, with the LLVM of libamosc, as a function in C.
#include <lld/Common/Driver.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/raw_ostream.h>

LLD_HAS_DRIVER(elf)

// Links as ld.lld does with these words. Returns its exit status. Once in a process.
extern "C" int amosc_lld(int argc, const char **argv)
{
	llvm::ArrayRef<const char *> words(argv, static_cast<size_t>(argc));
	return lld::elf::link(words, llvm::outs(), llvm::errs(), false, false) ? 0 : 1;
}

// What Debian's LLVM adds to link-time optimization, which amosc does not use: nothing.
llvm::PassPluginLibraryInfo getPollyPluginInfo();
llvm::PassPluginLibraryInfo getPollyPluginInfo()
{
	return {LLVM_PLUGIN_API_VERSION, "none", "", [](llvm::PassBuilder &) {}};
}

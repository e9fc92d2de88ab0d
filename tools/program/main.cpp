// The orrery command line.

#include "tools/program/entry.hpp"

int main(int argc, char** argv) {
    return orrery::program::run_program(argc, argv);
}

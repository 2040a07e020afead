// The start of the `pyflame` program of all installations but a wheel.
#include "commands.h"

int main(int argc, char** argv) { return pyflame_program(argc, argv); }

// Folders in which Python packages are installed. A vendor's libraries also come as packages (pip), and the dynamic loader does not search there.
#pragma once
#include <string>
#include <vector>

namespace pyflame {

// The Python module hands over the interpreter's own search path when it is imported: only the interpreter knows all of it.
void set_package_folders(std::vector<std::string> folders);
// Those; in a program without Python the site-packages of the environment that the program is installed in or that is active (VIRTUAL_ENV,
// CONDA_PREFIX).
std::vector<std::string> package_folders();

}  // namespace pyflame

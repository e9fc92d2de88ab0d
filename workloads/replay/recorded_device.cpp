#include "workloads/replay/recorded_device.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

namespace orrery::replay {

std::string device_preset_of(const std::string& name) {
    std::string plain = " ";
    for (const char c : name) {
        const auto byte = static_cast<unsigned char>(c);
        plain += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : ' ';
    }
    plain += ' ';
    struct Known {
        std::vector<const char*> words;  // all of them must be there
        const char* preset;
    };
    // The first that fits counts: what is special comes before what is general.
    static const std::vector<Known> kKnown = {
        {{"a100", "pcie", "40gb"}, "a100-pcie-40g"},
        {{"a100", "40gb"}, "a100-sxm-40g"},
        {{"a100", "pcie", "80gb"}, "a100-pcie-80g"},
        {{"a800", "sxm4", "80gb"}, "a800-sxm-80g"},
        {{"a100", "sxm4", "80gb"}, "a100-sxm-80g"},
        {{"h100", "pcie"}, "h100-pcie"},
        {{"h100", "80gb", "hbm3"}, "h100-sxm"},
        {{"h100", "nvl"}, "h100-nvl-94g"},
        {{"h800", "pcie"}, ""},
        {{"h800"}, "h800-sxm"},
        {{"h200", "nvl"}, "h200-nvl-141g"},
        {{"h200"}, "h200-sxm"},
        {{"h20", "3e"}, "h20-141g"},
        {{"h20"}, "h20"},
        {{"gh200", "144g"}, "gh200-144g"},
        {{"gh200"}, "gh200-96g"},
        {{"gb10"}, "gb10"},
        {{"gb200"}, "gb200"},
        {{"gb300"}, "gb300"},
        {{"b200"}, "b200-sxm"},
        {{"b300"}, "b300-sxm"},
        {{"v100", "sxm2", "32gb"}, "v100-sxm-32g"},
        {{"v100", "sxm3", "32gb"}, "v100-sxm3-32g"},
        {{"v100", "pcie", "16gb"}, "v100-pcie-16g"},
        {{"a10"}, "a10"},
        {{"a40"}, "a40"},
        {{"rtx", "a6000"}, "a6000"},
        {{"l4"}, "l4"},
        {{"l20"}, "l20"},
        {{"l40"}, "l40"},
        {{"l40s"}, "l40s"},
        {{"rtx", "6000", "ada"}, "rtx-6000-ada"},
        {{"rtx", "3090"}, "rtx-3090"},
        {{"rtx", "4090"}, "rtx-4090"},
        {{"rtx", "5090"}, "rtx-5090"},
        {{"t4"}, "t4"},
        {{"rtx", "pro", "6000", "blackwell", "server"}, "rtx-pro-6000"},
        {{"rtx", "pro", "6000", "blackwell", "workstation"}, "rtx-pro-6000-workstation"},
        {{"mi210"}, "mi210"},
        {{"mi250x"}, "mi250x-gcd"},
        {{"mi300x"}, "mi300x"},
        {{"mi308x"}, "mi308x"},
        {{"mi325x"}, "mi325x"},
        {{"mi350x"}, "mi350x"},
        {{"mi355x"}, "mi355x"},
    };
    const auto found = std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& known) {
        return std::all_of(known.words.begin(), known.words.end(), [&](const char* word) {
            return plain.find(" " + std::string(word) + " ") != std::string::npos;
        });
    });
    return found == kKnown.end() ? "" : found->preset;
}

}  // namespace orrery::replay

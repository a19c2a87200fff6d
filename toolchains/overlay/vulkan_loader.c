/* Stands for the board's Vulkan loader when programs are linked; it is never run. What ggml
 * calls by its address is here; all else it fetches from the loader by name. */
void vkGetInstanceProcAddr(void) {}
void vkGetDeviceProcAddr(void) {}
void vkCmdCopyBuffer(void) {}
void vkGetPhysicalDeviceFeatures2(void) {}

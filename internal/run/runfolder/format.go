package runfolder

import "fmt"

// Duration writes seconds for people: 0.4 s, 41 s, 12:05 or 3:02:11. It is "-" for 0.
func Duration(seconds float64) string {
	switch s := int64(seconds + 0.5); {
	case seconds <= 0:
		return "-"
	case seconds < 9.95:
		return fmt.Sprintf("%.1f s", seconds)
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	default:
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
}

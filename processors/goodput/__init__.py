"""Where did a job's time go, and what did each incident cost it?"""
